"""Frames that a report shows, and the tables about their structure: which, how many, and the numbers of each."""

from __future__ import annotations

import base64
import importlib
from dataclasses import replace

import mdtraj
import numpy as np
import pytest
from markupsafe import escape
from report_stand_ins import Ladder, Run, make_table

import peptidyn as ptd
from peptidyn.analysis.conformations import Conformations
from peptidyn.analysis.estimates import Estimate, estimate, with_error
from peptidyn.analysis.melting import melting_curve, melting_temperature
from peptidyn.analysis.report import structure_tab as tabs
from peptidyn.analysis.report import viewer
from peptidyn.analysis.report.viewer import level_frames, most_frames, pack, run_frames, shown_atoms, view_data
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.io.structure import Note
from peptidyn.runs.settings import ExchangeSettings, RunSettings

pages = importlib.import_module("peptidyn.analysis.report.exchange_page")  # its package has a function of that name
run_pages = importlib.import_module("peptidyn.analysis.report.run_page")

WATER = """\
HETATM   91  O   HOH B  91      30.000  30.000  30.000  1.00  0.00           O
HETATM   92  H1  HOH B  91      30.957  30.000  30.000  1.00  0.00           H
HETATM   93  H2  HOH B  91      29.760  30.927  30.000  1.00  0.00           H
"""


@pytest.fixture(scope="module")
def peptide():
    return ptd.build_peptide("AAAAAA", phi=-57, psi=-47)


@pytest.fixture(scope="module")
def wet(peptide, tmp_path_factory):
    """A capped peptide of six residues with a molecule of water before it."""
    path = tmp_path_factory.mktemp("wet") / "wet.pdb"
    peptide.write(path)
    atoms = [line for line in path.read_text().splitlines(True) if line.startswith(("ATOM", "HETATM", "TER"))]
    path.write_text(WATER + "".join(atoms) + "END\n")
    return ptd.load_structure(path)


def moved(structure, n, seed=0):
    """Return n frames: a helix that becomes a strand and back, each turned and shifted; water goes elsewhere."""
    rng = np.random.default_rng(seed)
    water = structure.n_atoms - ptd.build_peptide("AAAAAA").n_atoms
    x = np.empty((n, structure.n_atoms, 3))
    for i, frame in enumerate(x):
        phi, psi = ((-57, -47), (-139, 135), (-100, 60))[i % 3]
        turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        turn *= np.sign(np.linalg.det(turn))
        frame[water:] = ptd.build_peptide("AAAAAA", phi=phi + i + 2, psi=psi).positions @ turn + rng.normal(size=3)
        frame[:water] = rng.normal(size=(water, 3)) + 5.0
    return x


def distances(x):
    return np.linalg.norm(x[..., :, None, :] - x[..., None, :, :], axis=-1)


# ---------------------------------------------------------------------------- frames


def test_water_is_not_shown(wet, peptide):
    shown, notes = shown_atoms(wet)
    assert shown.tolist() == list(range(3, wet.n_atoms)) and notes == ["3 atoms of water are not shown."]
    assert shown_atoms(peptide)[0].tolist() == list(range(peptide.n_atoms)) and shown_atoms(peptide)[1] == []


def test_water_alone_is_shown(tmp_path):
    (tmp_path / "x.pdb").write_text(WATER + "END\n")
    shown, notes = shown_atoms(ptd.load_structure(tmp_path / "x.pdb"))
    assert shown.tolist() == [0, 1, 2] and notes == []


@pytest.fixture(scope="module")
def run(wet, tmp_path_factory):
    """A run of 12 frames whose trajectory has one more, as a run leaves it that is killed while it writes."""
    x = moved(wet, 13)
    path = tmp_path_factory.mktemp("run") / "trajectory.dcd"
    mdtraj.Trajectory(x, wet.to_mdtraj().topology).save_dcd(str(path))
    tree = ptd.build_tree(wet, "phi psi")
    made = Run(RunSettings(), tree, wet, make_table(tree, np.zeros((12, 12))), trajectory=path)
    return made, x[:12]


@pytest.mark.parametrize(("most", "stride"), [(12, 1), (11, 2), (6, 2), (5, 3), (1, 6)])
def test_at_most_so_many_frames_of_a_run(run, most, stride):
    """Times are those of the frames; at least two are asked for."""
    made, x = run
    frames, times, notes = run_frames(made, np.arange(3, x.shape[1]), most)
    assert frames.xyz == pytest.approx(x[::stride, 3:], abs=1e-5)
    assert times.tolist() == [2.0 + 0.5 * i for i in range(0, 12, stride)]
    ordinal = {2: "2nd", 3: "3rd", 6: "6th"}.get(stride)
    left = f"Every {ordinal} frame is shown, {len(x[::stride])} of 12, to keep this file small."
    assert notes == ([] if stride == 1 else [left])


@pytest.mark.parametrize(("most", "stride"), [(9, 1), (8, 2), (4, 3), (2, 5), (1, 5)])
def test_at_most_so_many_frames_of_a_temperature(wet, most, stride):
    x = moved(wet, 18).reshape(2, 9, wet.n_atoms, 3)
    ladder = Ladder(wet, np.array([300.0, 400.0]), x, np.arange(18.0).reshape(2, 9), np.zeros((9, 2), int))
    frames, rows, notes = level_frames(ladder, 1, np.arange(3, 9), most)
    assert frames.xyz == pytest.approx(x[1, ::stride, 3:9], abs=1e-5)
    assert rows["potential"].tolist() == list(range(9, 18, stride)) and set(rows["level"]) == {1}
    assert bool(notes) == (stride > 1) and (stride == 1 or f"{len(rows)} of 9" in notes[0])


def test_how_many_frames_fit():
    """Three coordinates of two bytes for each atom; at least two frames, and at most 500."""
    assert most_frames(100, 60_000) == 100 and most_frames(100, 60_599) == 100 and most_frames(100, 60_600) == 101
    assert most_frames(100, 1) == 2 and most_frames(1, 10**9) == 500


def test_ordinal_numbers():
    words = "2nd 3rd 4th 11th 12th 13th 21st 22nd 23rd 100th 101st 111th 112th 113th 124th".split()
    assert [viewer._ordinal(int(word[:-2])) for word in words] == words


def unpack(view):
    return np.frombuffer(base64.b64decode(view["frames"]), "<i2").reshape(-1, view["atoms"], 3) * view["scale"]


def test_packed_frames_lie_on_the_first(peptide):
    """In Å, about the middle of the first frame; the frames that were given stay."""
    x = moved(peptide, 4)
    frames = mdtraj.Trajectory(x, peptide.to_mdtraj().topology)
    given = frames.xyz.copy()
    view = pack(frames, np.array([0.1234567, 2.0, 3.0, 4.0]), "before ", " after")
    found = unpack(view)
    assert np.array_equal(frames.xyz, given)
    assert np.abs(found[0] - 10.0 * (x[0] - x[0].mean(axis=0))).max() < 1e-3
    assert np.abs(distances(found) - 10.0 * distances(x)).max() < 5e-3
    for frame in found[1:]:  # the rotation that is best: the correlation with the first frame is symmetric
        c = (frame - frame.mean(axis=0)).T @ (found[0] - found[0].mean(axis=0))
        assert np.abs(c - c.T).max() < 2e-3 * np.abs(c).max() and np.linalg.det(c) > 0
        assert np.abs(frame.mean(axis=0)).max() < 1e-3
    assert view["scale"] == pytest.approx(np.abs(found).max() / 32_000, rel=1e-3) and view["scale"] > 1e-4
    assert view["times"] == [0.123457, 2.0, 3.0, 4.0] and (view["before"], view["after"]) == ("before ", " after")
    assert (view["atoms"], view["residues"]) == (peptide.n_atoms, 8)
    first = [line for line in view["pdb"].splitlines() if line.startswith(("ATOM", "HETATM"))]
    written = np.array([[float(line[30 + 8 * i : 38 + 8 * i]) for i in range(3)] for line in first])
    assert np.abs(written - found[0]).max() < 2e-3
    assert [int(line[22:26]) for line in first] == [peptide.atoms.residue[i] + 1 for i in range(peptide.n_atoms)]


def test_two_atoms_are_not_turned_and_have_the_finest_scale():
    top = mdtraj.Topology()
    residue = top.add_residue("X", top.add_chain(), resSeq=77)
    for name in ("A", "B"):
        top.add_atom(name, mdtraj.element.argon, residue)
    x = np.array([[[0, 0, 0], [0.1, 0, 0]], [[0, 0, 0], [0, 0.1, 0]]])
    view = pack(mdtraj.Trajectory(x, top), np.arange(2), "", "")
    atoms = [line for line in view["pdb"].splitlines() if line.startswith(("ATOM", "HETATM"))]
    assert view["scale"] == 1e-4 and [int(line[22:26]) for line in atoms] == [77, 77]
    assert unpack(view) == pytest.approx(10.0 * (x - x[0].mean(axis=0)), abs=1e-4)


def test_the_view_of_a_run_leaves_out_water_and_says_so(run):
    made, x = run
    n = x.shape[1] - 3
    view, notes = view_data(made, most_bytes=6 * n * 6)
    assert view["atoms"] == n and len(view["times"]) == 6
    assert notes[0] == "3 atoms of water are not shown." and "Every 2nd frame is shown, 6 of 12" in notes[1]
    assert (view["before"], view["after"]) == ("", " ps") and view["times"][:2] == [2.0, 3.0]
    assert np.abs(distances(unpack(view)) - 10.0 * distances(x[::2, 3:])).max() < 5e-3


# ---------------------------------------------------------------------------- the tab about structure


def trajectory(structure, n):
    return mdtraj.Trajectory(moved(structure, n), structure.to_mdtraj().topology)


def test_the_tab_of_a_run_measures_from_the_structure_that_was_prepared(run, wet):
    made, x = run
    tab = run_pages._structure(made)
    atoms = np.arange(3, wet.n_atoms)
    frames = mdtraj.Trajectory(x[:, 3:], wet.to_mdtraj().topology.subset(atoms))
    rmsd = Conformations(frames, wet.positions[3:]).rmsd
    name, *numbers = tab.averages[-1]
    assert name == "RMSD (nm)" and numbers == pytest.approx([rmsd.mean, rmsd.error], abs=2e-4)
    assert 1e-3 < rmsd.values[0] < rmsd.mean
    lines = tab.figures["size"].axes[0].lines[0]
    assert lines.get_xdata().tolist() == made.table["time"].tolist()
    assert lines.get_ydata() == pytest.approx(rmsd.values, abs=2e-4)  # coordinates of files have single precision
    assert tab.figures["size"].axes[-1].get_xlabel() == "time (ps)" and tab.notes == []


def test_tables_of_structure_residue_by_residue(peptide):
    frames = trajectory(peptide, 9)
    found = Conformations(frames, peptide.positions)
    tab = tabs.structure_tab(found, np.arange(9), "iteration", ["a note"])
    assert tab.notes == ["a note"] and tab.basin_names == ("alpha", "beta", "left")
    names = ["helix content", "hydrogen bonds", "radius of gyration (nm)", "end-to-end distance (nm)", "RMSD (nm)"]
    measured = [ptd.helix_content, ptd.hydrogen_bonds, ptd.radius_of_gyration, ptd.end_to_end_distance]
    ones = [*(measure(frames) for measure in measured), found.rmsd]
    assert tab.averages == [
        (name, round(one.mean, 4), round(one.error, 4)) for name, one in zip(names, ones, strict=True)
    ]
    letters = mdtraj.compute_dssp(frames, simplified=True)
    assert [row[0] for row in tab.secondary] == [f"ALA {i}" for i in range(2, 8)]
    for i, row in enumerate(tab.secondary, start=1):  # without caps
        for text, letter in zip(row[1:], "HEC", strict=True):
            one = estimate(letters[:, i] == letter)
            assert text == tabs.part(one.mean, one.error)
    assert any(row[1] not in ("0", "1") for row in tab.secondary)
    basins = ptd.ramachandran_basins(frames)
    for i, row in enumerate(tab.basins):
        assert row[0] == f"ALA{i + 2}"
        assert row[1:] == tuple(tabs.part(m, e) for m, e in zip(basins.mean[i], basins.error[i], strict=True))


def test_hydrogen_bonds_come_by_how_often_they_are_there(monkeypatch):
    monkeypatch.setattr(tabs, "MOST_BONDS", 3)
    longer = [
        ptd.build_peptide("A" * 9, phi=[-57] * k + [-139] * (9 - k), psi=[-47] * k + [135] * (9 - k))
        for k in (9, 0, 8, 9, 5, 7, 6, 9, 4)
    ]  # helices of so many residues: the bonds at their ends are rarer
    frames = mdtraj.Trajectory(np.array([one.positions for one in longer]), longer[0].to_mdtraj().topology)
    found = Conformations(frames, longer[0].positions)
    pairs, present = found.bonds
    rows, more = tabs._bonds(found)
    atom = frames.topology.atom
    assert len(pairs) > 3 and len(rows) == 3 and more == len(pairs) - 3
    parts = np.sort(present.mean(axis=0))[::-1][:3]
    assert parts[-1] > present.mean(axis=0).min()
    assert [row[2] for row in rows] == pytest.approx(parts, abs=6e-4)
    for donor, acceptor, share, error in rows:
        i = next(
            i for i, (d, a) in enumerate(pairs)
            if donor == f"ALA {atom(d).residue.resSeq} N" or donor == f"NME {atom(d).residue.resSeq} N"
            if acceptor.endswith(f" {atom(a).residue.resSeq} O")
        )  # fmt: skip
        one = estimate(present[:, i])
        assert (share, error) == (round(float(one.mean), 3), round(float(one.error), 3)) and error > 0
    tab = tabs.structure_tab(found, np.arange(9), "iteration", [])
    assert tab.more_bonds == more and tab.bonds == rows
    assert tab.figures["bonds"].axes[0].lines[0].get_ydata().tolist() == present.sum(axis=1).tolist()


def test_names_and_parts():
    assert tabs.named(Estimate(np.zeros(2), 0.0, 0.0, "size", "nm")) == "size (nm)"
    assert tabs.named(Estimate(np.zeros(2), 0.0, 0.0, "part")) == "part"
    assert tabs.part(0.25, 0.05) == "0.250(50)" and tabs.part(0.25, 0.0) == "0.25" and tabs.part(1 / 3, 0.0) == "0.333"


# ---------------------------------------------------------------------------- the tables of replica exchange


WALK = np.array(
    [
        [0, 1, 2],
        [1, 0, 2],
        [2, 0, 1],
        [2, 1, 0],
        [1, 2, 0],
        [0, 2, 1],
        [0, 1, 2],
        [2, 1, 0],
        [0, 2, 1],
        [1, 2, 0],
        [2, 1, 0],
    ]
)
"""Replica 0 goes up and down twice; replica 2 begins at the top, and goes up and down once after it came down."""

MOVES = [
    {"move": "TorsionalHMC", "step": 0.004, "steps": 10, "friction": 1.0, "jitter": 0.2},
    {"move": "CartesianHMC", "step": 0.001, "steps": 7},
]


@pytest.fixture(scope="module")
def ladder(wet):
    """Nine frames, and energies, at three temperatures; four of each are helical where it is coldest."""
    x = np.stack([moved(wet, 9, seed) for seed in range(3)])
    x[1:, ::3] = x[1:, 1::3]  # no helix at the higher temperatures
    x[1, 3] = x[0, 0]
    rng = np.random.default_rng(1)
    potential = np.array([[-50.0], [0.0], [40.0]]) + rng.normal(0, 15, (3, 9)).cumsum(axis=1)
    return Ladder(wet, np.array([300.0, 400.0, 520.0]), x, potential, WALK, moves=MOVES)


def test_facts_of_replica_exchange(ladder, wet):
    assert dict(pages._facts(ladder)) == {
        "state": "finished", "replicas": "3", "temperatures (K)": "300.0, 400.0, 520.0", "iterations": "11",
        "frames per replica": "9", "round trips of all replicas": "3", "energy and force calls": "1234",
        "atoms": str(wet.n_atoms),
        "moves": "TorsionalHMC (step 0.004 ps, steps 10, friction 1.0 1/ps, jitter 0.2); "
        "CartesianHMC (step 0.001 ps, steps 7)",
    }  # fmt: skip


def test_round_trips_and_visits_of_the_replicas(ladder):
    assert pages._replicas(ladder) == [(0, 2, 4, 4), (1, 0, 2, 4), (2, 1, 5, 3)]


def test_energies_of_every_temperature(ladder):
    for row, T, V in zip(pages._levels(ladder), ladder.temperatures, ladder.potential, strict=True):
        g = statistical_inefficiency(V)
        error = V.std() * np.sqrt(g / 9)
        assert row == (T, 9, round(V.mean(), 2), round(error, 2), round(9 / g, 1))
    assert any(row[4] < 8 for row in pages._levels(ladder))


def test_melting_of_the_frames_of_every_temperature(ladder, wet):
    shown = np.arange(3, wet.n_atoms)
    alone, curves, sentences = pages._melting(ladder, shown)
    top = wet.to_mdtraj().topology.subset(shown)
    frames = [mdtraj.Trajectory(x[:, 3:], top) for x in ladder.x]
    helix = [ptd.helix_content(one) for one in frames]
    assert list(alone) == list(curves) and "RMSD (nm)" in alone and "radius of gyration (nm)" in alone
    assert alone["helix content"] == pytest.approx(np.array([(one.mean, one.error) for one in helix]))
    rmsd = [Conformations(one, wet.positions[3:]).rmsd for one in frames]
    assert alone["RMSD (nm)"] == pytest.approx(np.array([(one.mean, one.error) for one in rmsd]))
    grid = np.linspace(300.0, 520.0, 41)
    expected = melting_curve(np.array([one.values for one in helix]), ladder.potential, ladder.temperatures, grid)
    curve = curves["helix content"]
    assert curve.temperatures == pytest.approx(grid) and curve.mean == pytest.approx(expected.mean)
    assert curve.error == pytest.approx(expected.error)
    assert sentences[0] == "From 27 of 27 frames, from the first iteration on."
    assert len(sentences) == 1 + int(np.isfinite(melting_temperature(curve)[0]))
    rows = pages._melting_rows(ladder.temperatures, alone)
    assert [row[0] for row in rows] == [300.0, 400.0, 520.0]
    assert rows[1][1] == with_error(helix[1].mean, helix[1].error)
    assert rows[2][1 + list(alone).index("RMSD (nm)")] == with_error(rmsd[2].mean, rmsd[2].error)


def test_half_of_the_helix(ladder, wet, monkeypatch):
    """What the sentence says is the curve's own crossing and its error."""
    monkeypatch.setattr(pages, "melting_temperature", lambda curve: (412.3, 8.7))
    assert pages._melting(ladder, np.arange(3, wet.n_atoms))[2][1] == (
        "Half of the helix is left at 412 K, with a standard error of 9 K."
    )
    monkeypatch.setattr(pages, "melting_temperature", lambda curve: (np.nan, 5.0))
    assert len(pages._melting(ladder, np.arange(3, wet.n_atoms))[2]) == 1


@pytest.mark.parametrize("n", [3, 4])
def test_curves_need_four_iterations(ladder, wet, n):
    few = Ladder(wet, ladder.temperatures, ladder.x[:, :n], ladder.potential[:, :n], WALK[:n], moves=MOVES)
    alone, curves, sentences = pages._melting(few, np.arange(3, wet.n_atoms))
    assert len(alone) == 5 and bool(curves) == (n == 4)
    assert ("Curves over all temperatures need four iterations." in sentences) == (n == 3)


def test_thinned_frames_of_melting_are_counted(ladder, wet, monkeypatch):
    monkeypatch.setattr(pages, "MOST_FRAMES", 5)
    _, curves, sentences = pages._melting(ladder, np.arange(3, wet.n_atoms))
    assert sentences[0] == "From 15 of 27 frames, from the first iteration on." and curves


def test_structure_and_view_are_those_of_the_lowest_temperature(ladder, wet, monkeypatch):
    shown = np.arange(3, wet.n_atoms)
    tab, view, left_out = pages._lowest(ladder, shown, 6 * len(shown) * 5)
    frames = mdtraj.Trajectory(ladder.x[0][:, 3:], wet.to_mdtraj().topology.subset(shown))
    rmsd = Conformations(frames, wet.positions[3:]).rmsd
    assert tab.averages[-1] == ("RMSD (nm)", round(rmsd.mean, 4), round(rmsd.error, 4)) and tab.notes == []
    assert tab.figures["size"].axes[0].lines[0].get_xdata().tolist() == list(range(10, 28, 2))
    assert view["times"] == [10, 14, 18, 22, 26] and (view["before"], view["after"]) == ("iteration ", "")
    assert "Every 2nd frame is shown, 5 of 9" in left_out[0]
    assert np.abs(distances(unpack(view)) - 10.0 * distances(ladder.x[0, ::2, 3:])).max() < 5e-3
    monkeypatch.setattr(pages, "MOST_STRUCTURES", 3)
    assert "Every 3rd frame is shown, 3 of 9" in pages._lowest(ladder, shown, 10**9)[0].notes[0]


@pytest.mark.parametrize("settings", [None, ExchangeSettings(file="some/file.pdb", replicas=3)])
def test_the_page_of_replica_exchange(ladder, wet, blank_pictures, settings):
    done = 2 if settings is None else 11
    ladder.settings, ladder.ending, ladder.walk = settings, "unfinished", WALK[:done]
    ladder.structure = replace(wet, notes=(Note("gap", "a note of the structure"),))
    text = pages.exchange_page(ladder, 6 * (wet.n_atoms - 3) * 5)
    ladder.settings, ladder.ending, ladder.walk, ladder.structure = None, "finished", WALK, wet
    assert f"3 replicas, 300.0 to 520.0 K, {done} iterations" in text
    assert ("It can be continued: peptidyn exchange --resume -o ladder." in text) == (settings is not None)
    assert f"peptidyn exchange: {'ladder' if settings is None else settings.name}" in text
    assert (f"<td>{escape(settings.distribution)}</td>" in text) if settings else "<td>distribution</td>" not in text
    assert text.count("The lowest temperature, 300.0 K") == 1 and "3 atoms of water are not shown." in text
    assert str(Note("gap", "a note of the structure")) in text
    assert "Every 2nd frame is shown, 5 of 9" in text and "Helix content is the part of residues" in text
