"""Tables of the report of a run: every number by hand, for runs whose frames are written down."""

from __future__ import annotations

import importlib
import re

import numpy as np
import pytest
from report_stand_ins import Run, make_table

import peptidyn as ptd
from peptidyn.analysis.estimates import with_error
from peptidyn.analysis.step_limits import estimate_periods
from peptidyn.core.units import BOLTZMANN
from peptidyn.runs.settings import RunSettings

pages = importlib.import_module("peptidyn.analysis.report.run_page")  # its package has a function of that name

PHI = np.array([-100.0, 60.0, -100.0, 0.0, -100.0, -100.0, 65.0, 60.0])
PSI = np.array([170.0, -170.0, 175.0, -175.0, -40.0, 170.0, -170.0, 180.0])


def make(torsions=None, soft="phi psi", sequence="A", summary=None, inertia=None, columns=None, **settings):
    """Return a run of 8 frames from 2 to 5.5 ps, at 350 K unless it is given."""
    structure = ptd.build_peptide(sequence)
    tree = ptd.build_tree(structure, soft)
    tree = tree if inertia is None else tree.with_joint_inertia(inertia)
    torsions = np.stack([PHI, PSI], axis=1) if torsions is None else torsions
    table = make_table(tree, torsions, **(columns or {}))
    settings = RunSettings(file="some/file.pdb", **{"temperature": 350.0, "soft": soft, **settings})
    return Run(settings, tree, structure, table, summary or {})


def section(text, key):
    return re.search(rf'<section role="tabpanel" id="panel-{key}".*?</section>', text, flags=re.S)[0]


def up_and_down(mean, spread, n=8):
    """Values whose order makes them independent; the standard error of their mean is spread / sqrt(n)."""
    return mean + spread * np.tile([1.0, -1.0], n // 2)


def test_transitions_and_means_of_torsions():
    """phi: to 60, back, over 0 (no core) back to -100, to 65: three. psi: to -40 and back. In 3.5 ps."""
    phi, psi = pages._transitions(make())
    assert phi[0] == "phi of chain A, residue ALA 2" and psi[0] == "psi of chain A, residue ALA 2"
    assert phi[1:3] == (3, round(3 / 3.5, 4)) and psi[1:3] == (2, round(2 / 3.5, 4))
    for row, degrees in ((phi, PHI), (psi, PSI)):
        z = np.exp(1j * np.deg2rad(degrees)).mean()
        assert row[3] == pytest.approx(np.rad2deg(np.angle(z)), abs=0.051)
    assert -180.0 < psi[3] < -150.0 or 150.0 < psi[3] < 180.0  # across the seam; the plain mean is 43 degrees


def test_populations_of_wells_with_their_errors():
    """Zero degrees is nearer to 60 than to -100; one frame of eight is in the other well of psi."""
    phi, psi = (row[4] for row in pages._transitions(make()))
    names, parts = zip(*(part.split(": ") for part in phi.split("; ")), strict=True)
    assert names == ("-100", "60") and [float(part.split("(")[0]) for part in parts] == [0.5, 0.5]
    seen = np.isin(np.arange(8), [4])
    error = seen.std() / np.sqrt(8)
    assert psi == f"-40: {with_error(0.125, error)}; 150: {with_error(0.875, error)}"
    one = make(np.tile([[-100.0, 150.0]], (8, 1)))
    assert [row[4] for row in pages._transitions(one)] == [
        "-100: 1",
        "150: 1",
    ]  # a well that was never seen is left out


@pytest.mark.parametrize("fixman", [True, False])
def test_averages_with_their_errors(fixman):
    means = {"potential": (-120.0, 2.0), "kinetic": (80.0, 3.0), "fixman": (7.0, 1.0), "total": (-33.0, 4.0)}
    means["temperature"] = (345.0, 5.0)
    run = make(columns={name: up_and_down(*values) for name, values in means.items()}, fixman=fixman)
    words = {"potential (kJ/mol)": "potential", "kinetic (kJ/mol)": "kinetic", "Fixman, U_F (kJ/mol)": "fixman"}
    words |= {"total (kJ/mol)": "total", "temperature (K)": "temperature"}
    expected = [
        (word, means[name][0], round(means[name][1] / np.sqrt(8), 2))
        for word, name in words.items() if fixman or name != "fixman"
    ]  # fmt: skip
    assert pages._averages(run) == expected


def test_the_drift_by_hand():
    """0.003 kJ/mol in a picosecond are 3 in a nanosecond, for 6 + 2 degrees of freedom at 350 K."""
    time = 2.0 + 0.5 * np.arange(8)
    run = make(ensemble="nve", columns={"total": 12.0 + 0.003 * time, "potential": 0.5 * time})
    drift, per_dof = pages._drift(run)
    assert drift == pytest.approx(3.0) and per_dof == pytest.approx(3.0 / (BOLTZMANN * 350.0 * 8))


def test_facts_of_a_run():
    facts = dict(pages._facts(make()))
    assert facts == {
        "state": "finished", "frames": "8", "simulated time (ps)": "5.5", "steps": "1100", "atoms": "22",
        "soft coordinates": "2 torsions", "degrees of freedom": "8", "Fixman potential": "on",
        "distribution": make().settings.distribution, "kinetic metric": "physical",
    }  # fmt: skip
    summary = {"pivot_moves": {"accepted": 3, "proposed": 40}, "ns_per_day": 12.345}
    more = dict(pages._facts(make(summary=summary, fixman=False, inertia=[0.0, 0.2], metric="auto")))
    assert more["pivot moves"] == "3 of 40 accepted" and more["speed (ns/day)"] == "12.3"
    assert more["Fixman potential"] == "off" and "bias" in more["distribution"]
    assert more["kinetic metric"] == "auto: 1 soft coordinates have joint inertias, so rates are not physical"


def test_settings_have_units_and_words():
    run = make(timestep=2.5, fixman=True, rigid=("resid 1", "resid 3"), cutoff=1.25, seed=0)
    rows = dict(pages.setting_rows(run.settings))
    assert rows["timestep (fs)"] == "2.5" and rows["temperature (K)"] == "350" and rows["cutoff (nm)"] == "1.25"
    assert rows["friction (1/ps)"] == "1" and rows["rigid"] == "resid 1, resid 3" and rows["file"] == "some/file.pdb"
    assert rows["relax"] == rows["fixman"] == "yes" and rows["keep_rigid_terms"] == "no"
    assert rows["seed"] == rows["pivots"] == rows["model"] == "0"  # a zero is a value
    assert not {"pressure (bar)", "platform", "parameters"} & set(rows)
    water = dict(pages.setting_rows(RunSettings(solvent="tip3p", pressure=1.5, padding=0.9, hydrogen_mass=3.0)))
    assert water["pressure (bar)"] == "1.5" and water["padding (nm)"] == "0.9" and water["ions (mol/l)"] == "0"
    assert water["hydrogen_mass (Da)"] == "3"


def test_versions_are_those_that_were_recorded():
    rows = dict(pages.version_rows({"peptidyn": "0.1", "openmm": "7.9", "platform": "CUDA", "seed": 1}))
    assert rows["peptidyn, of the run"] == "0.1" and rows["OpenMM, of the run"] == "7.9 (CUDA)"
    assert rows["peptidyn, of this report"] == ptd.__version__ and rows["numpy, of this report"] == np.__version__
    assert dict(pages.version_rows({}))["OpenMM, of the run"] == "not recorded (?)"


def size_by_hand(log_weights):
    w = np.exp(log_weights - log_weights.max())
    return w.sum() ** 2 / (w**2).sum()


def extremes(log_weights):
    """The smallest and the largest weight, relative to equal ones."""
    w = np.exp(log_weights - log_weights.max())
    return w.min() / w.mean(), w.max() / w.mean()


def drawn_weights(figure):
    """Where the bars of the histogram of weights begin and end."""
    bars = figure.axes[1].patches
    return bars[0].get_x(), bars[-1].get_x() + bars[-1].get_width()


def test_weights_take_out_u_f_that_was_on():
    """In units of kT at 350 K: exp(U_F / kT) gives what dynamics without it samples."""
    energy = np.array([0.0, 1.0, 0.5, 4.0, 2.0, 0.3, 1.2, 0.1])
    rows, figure = pages._fixman(make(columns={"fixman": energy * BOLTZMANN * 350.0 + 9.0}, fixman=True))
    assert rows == [
        ("standard deviation of U_F (kT)", round(energy.std(), 3)),
        ("range of U_F (kT)", 4.0),
        ("effective sample size with the weights", round(size_by_hand(energy), 1)),
        ("frames", 8),
    ]
    assert drawn_weights(figure) == pytest.approx(extremes(energy))


def test_weights_bring_in_u_f_that_was_off():
    """exp(-U_F / kT), with U_F of the soft coordinates: what the table says of it does not count."""
    bends = np.random.default_rng(2).uniform(0.5, 2.0, (8, 3))
    run = make(fixman=False, columns={"fixman": np.full(8, 777.0), "bends": bends}, soft="phi psi angles")
    energy = ptd.FixmanPotential(run.tree, 350.0).energies(run.q) / (BOLTZMANN * 350.0)
    rows, figure = pages._fixman(run)
    assert [row[1] for row in rows[:3]] == pytest.approx(
        [energy.std(), np.ptp(energy), size_by_hand(-energy)], abs=0.051
    )
    assert drawn_weights(figure) == pytest.approx(extremes(-energy))
    assert figure.axes[0].lines[0].get_ydata() == pytest.approx(energy - energy.mean())


def test_the_fastest_coordinates_come_first():
    """Ten torsions whose spreads grow one after the other: eight rows, in fs and in steps of 2.5 fs, at 350 K."""
    n = 12
    rng = np.random.default_rng(3)
    torsions = rng.permuted(np.linspace(-1.0, 1.0, n)[:, None] * np.linspace(1.0, 30.0, 10), axis=0)
    run = make(torsions, sequence="AAAAA", timestep=2.5)
    periods = estimate_periods(run.tree, run.q, 350.0)
    order = np.argsort(periods)
    rows = pages._periods(run)
    assert len(rows) == 8 and [row[0] for row in rows] == [str(run.tree.coordinates[i]) for i in order[:8]]
    assert [row[1] for row in rows] == pytest.approx(1000.0 * periods[order[:8]], abs=0.051)
    assert [row[2] for row in rows] == pytest.approx(periods[order[:8]] / 0.0025, abs=0.051)
    assert pages._periods(make(torsions[:9], sequence="AAAAA")) == []
    assert len(pages._periods(make(torsions[:10], sequence="AAAAA"))) == 8


@pytest.mark.parametrize("ensemble", ["nve", "langevin"])
def test_the_page_of_a_run_without_a_trajectory(ensemble, blank_pictures, monkeypatch):
    figures = []
    monkeypatch.setattr(pages, "as_data_uri", lambda figure: f"data:{figures.append(figure)}")
    time = 2.0 + 0.5 * np.arange(8)
    run = make(ensemble=ensemble, columns={"total": 12.0 - 0.003 * time}, summary={"notes": ["a note of the run"]})
    text = pages.run_page(run)
    energy, drift = figures[:2]
    labels = [line.get_label() for line in energy.axes[1].lines]
    assert ("heat bath 350 K" in labels) == (ensemble != "nve")
    assert (drift.axes[0].get_title() == "Drift of the total energy") == (ensemble == "nve")
    assert "peptidyn run: file.pdb" in text and f"8 frames, 5.5 ps, {ensemble}, 350 K" in text
    overview = section(text, "overview")
    assert "The run is complete." in overview and "a note of the run" in overview
    assert ("The energy drifts by -3 kJ/mol/ns, -0.13 kT" in section(text, "energy")) == (ensemble == "nve")
    assert "The run has no trajectory to look at." in section(text, "structure")
    assert "The run has no trajectory to show." in section(text, "view") and "3Dmol-min" not in text
    assert "No chi angle is soft." in section(text, "torsions") and "phi of chain A" in section(text, "torsions")
    assert "too few frames to estimate periods" in section(text, "step") and "Mean 4.00, largest 4." in text


def test_the_page_of_an_interrupted_run_says_how_it_goes_on(blank_pictures):
    run = make(sequence="AP", soft="phi psi", torsions=np.zeros((8, 3)))
    run.ending = "interrupted"
    overview = section(pages.run_page(run), "overview")
    assert "can be continued: peptidyn run --resume -o run." in overview
    assert all(str(note) in overview for note in run.structure.notes) and run.structure.notes
