"""Every example runs with small settings and ends with a picture, and the study helper that some of them use."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import peptidyn as ptd
from molecules import constrained_system, context
from peptidyn import Study
from peptidyn.core.errors import ArgumentError

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))
LONG = {
    "folding.py", "freeze_domain.py", "gibbs_alanine.py", "kinetic_metric.py", "polyalanine_helix.py",
    "polyalanine_size.py", "solver_shootout.py",
}  # fmt: skip
"""Those that take more than a few seconds with --quick, most of it to compile kernels."""


def marked(name):
    return pytest.param(name, marks=pytest.mark.slow) if name in LONG else name


@pytest.mark.parametrize("name", [marked(name) for name in NAMES])
def test_example(name, tmp_path, capsys, monkeypatch):
    from matplotlib import image

    monkeypatch.chdir(tmp_path)
    picture = tmp_path / "out.png"
    runpy.run_path(str(EXAMPLES / name))["main"](["--quick", "-o", str(picture)])
    assert str(picture) in capsys.readouterr().out
    pixels = image.imread(picture)[..., :3]
    assert min(pixels.shape[:2]) > 400
    # axes and words are black on white; what is drawn has colour
    assert (np.ptp(pixels, axis=2) > 0.1).mean() > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_example_says_how_to_run_it(name):
    text = (EXAMPLES / name).read_text()
    assert f"python examples/{name}" in text.split('"""')[1]
    assert f"examples/{name}" in (EXAMPLES.parent / "docs" / "examples.md").read_text()


def test_the_openmm_system_of_the_helix_study_is_the_one_of_the_force_field():
    """Bonds of hydrogens made to constraints by hand, and masses moved, as openmm.app.ForceField does it."""
    structure = ptd.build_peptide("AA")
    system = ptd.make_system(structure.topology, solvent="obc2")
    made = runpy.run_path(str(EXAMPLES / "polyalanine_helix.py"))["constrained"](structure.topology, system)
    wanted = constrained_system(structure.topology, system, 3.0)
    pairs = [
        {frozenset(one.getConstraintParameters(i)[:2]): one.getConstraintParameters(i)[2]._value
         for i in range(one.getNumConstraints())}
        for one in (made, wanted)
    ]  # fmt: skip
    assert pairs[0].keys() == pairs[1].keys() and pairs[0] == pytest.approx(pairs[1])
    masses = [[one.getParticleMass(i)._value for i in range(one.getNumParticles())] for one in (made, wanted)]
    assert masses[0] == pytest.approx(masses[1], abs=1e-4)
    places = [context(one) for one in (made, wanted)]
    for place in places:
        place.setPositions(structure.positions)
        place.applyConstraints(1e-8)
    energies = [place.getState(energy=True).getPotentialEnergy()._value for place in places]
    assert energies[0] == pytest.approx(energies[1], abs=1e-3)


def test_study_computes_what_is_missing(tmp_path):
    calls = []

    def square(x, up):
        calls.append((x, up))
        return {"y": np.float64(x * x if up else -x * x), "name": f"{x}"}

    path = tmp_path / "table.csv"
    study = Study(path, x=[1, 2], up=[True, False]).run(square)
    assert study.column("y", up=True).tolist() == [1.0, 4.0] and len(calls) == 4
    assert path.read_text().splitlines()[:2] == ["x,up,y,name", "1,True,1.0,1"]
    again = Study(path, x=[1, 2, 3], up=[True, False])
    assert len(again.rows) == 4 and again.rows[0] == {"x": 1, "up": True, "y": 1.0, "name": 1}
    again.run(square)
    assert calls[4:] == [(3, True), (3, False)]
    assert Study(path, x=[3], up=[False]).column("y").tolist() == [-9.0]


def test_study_keeps_rows_of_an_interrupted_run(tmp_path):
    def fails(x):
        if x == 3:
            raise RuntimeError("stop")
        return {"y": x}

    with pytest.raises(RuntimeError):
        Study(tmp_path / "t.csv", x=[1, 2, 3]).run(fails)
    assert Study(tmp_path / "t.csv", x=[1, 2, 3]).column("y").tolist() == [1, 2]


def test_study_refusals(tmp_path):
    path = tmp_path / "t.csv"
    Study(path, x=[1]).run(lambda x: {"y": x})
    with pytest.raises(ArgumentError, match="begins with z"):
        Study(path, z=[1])
    with pytest.raises(ArgumentError, match="another file"):
        Study(path, x=[2]).run(lambda x: {"other": x})
    with pytest.raises(ArgumentError, match="at least one setting"):
        Study(path)
    with pytest.raises(ArgumentError, match="not a setting"):
        Study(path, x=[1]).column("y", up=True)
    with pytest.raises(ArgumentError, match="no column"):
        Study(path, x=[1]).column("z")
