"""`TorsionReporter`: what is in every column, and how files go on, with whole frames only."""

from __future__ import annotations

import csv

import butane
import numpy as np
import pytest

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError
from peptidyn.core.sealed_files import extent_of_bytes
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.torsion_reporter import TorsionReporter, read_torsions, row_width, rows_of_table

HEAD = (
    "step", "time_ps", "potential_kJ_per_mol", "kinetic_kJ_per_mol", "fixman_kJ_per_mol", "total_kJ_per_mol",
    "temperature_K", "acceptance", "solver_iterations",
)  # fmt: skip
NAMES = ("step", "time", "potential", "kinetic", "fixman", "total", "temperature", "acceptance", "iterations")
FILES = ["t.csv", "t.npz"]


def make_simulation(kind=ptd.TorsionGHMCIntegrator, torsion=-2.0, h=0.0005):
    """Butane with soft bonds, angles and torsion, which are at 0.153 nm, 112 degrees and `torsion`."""
    chain = butane.make_tree()
    x = chain.positions(chain.reference.replace(torsions=[torsion]))
    topology, system = butane.make_topology(), butane.make_system()
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x), "all")
    simulation = ptd.TorsionSimulation(topology, system, kind(tree, 300.0, 5.0, h, seed=1), "Reference")
    simulation.set_velocities_to_temperature(300)
    return simulation


def report(simulation, file, steps, interval=2, close=True, **options):
    reporter = TorsionReporter(file, interval, **options)
    simulation.reporters = [reporter]
    simulation.step(steps)
    simulation.reporters = []
    if close:
        reporter.close()
    return reporter


def steps_in(path):
    if path.suffix == ".csv":
        return [int(line.split(",")[0]) for line in path.read_text().splitlines()[1:]]
    with np.load(path) as table:
        return table["step"].tolist()


def test_every_column_by_hand(tmp_path):
    """Also where the torsion is beyond 180 degrees: angles are from -180 to 180 degrees, bond angles from 0 to 180."""
    simulation = make_simulation()
    integrator, tree = simulation.integrator, simulation.tree
    state, momentum = integrator.motion()
    q = state.q.copy()
    q[tree.torsion_index] += 2.0 * np.pi - 1.5  # -3.5 rad and a turn
    integrator.set_motion(state.replace(q=q), momentum)
    simulation.step(3)
    reporters = [TorsionReporter(tmp_path / name, 1) for name in FILES]
    for reporter in reporters:
        reporter.report(simulation, simulation.context.getState())
        reporter.close()
    state = integrator.motion()[0]
    energy = simulation.context.getState(energy=True).getPotentialEnergy()._value
    fixman = BOLTZMANN * 300.0 * integrator.mover.fixman_energy()
    kinetic = integrator.mover.kinetic_energy()
    expected = [
        3, 0.0015, energy, kinetic, fixman, energy + fixman + kinetic,
        2.0 * kinetic / (tree.n_dof * BOLTZMANN), integrator.acceptance, integrator.solver_iterations,
    ]  # fmt: skip
    assert abs(fixman) > 1e-3 and kinetic > 1.0
    with np.load(tmp_path / "t.npz") as table:
        assert [float(table[name][0]) for name in NAMES] == pytest.approx(expected, rel=1e-9)
        assert table["step"].dtype == table["iterations"].dtype == np.int64
        turned = float(table["torsions"][0, 0])
        assert -np.pi <= turned < np.pi and np.exp(1j * turned) == pytest.approx(np.exp(1j * state.torsions[0]))
        assert table["bends"][0] == pytest.approx(state.bends) and table["stretches"][0] == pytest.approx(
            state.stretches
        )
        bends, stretches = table["bends"][0], table["stretches"][0]
        assert table["torsion_kind"].tolist() == ["rotor"] and table["stretch_residue_name"].tolist() == ["BUT"] * 3
        assert table["bend_residue"].tolist() == [0, 0] and table["bend_chain"].tolist() == ["A", "A"]
        assert table["bend_residue_id"].tolist() == ["1", "1"]
    assert (bends > 1.0).all() and (stretches < 0.2).all()
    head, row = csv.reader((tmp_path / "t.csv").read_text().splitlines())
    assert tuple(head[:9]) == HEAD and row[0] == "3" and "." not in row[8]
    values = np.array(row, dtype=float)
    assert values[:9] == pytest.approx(expected, abs=1e-6)
    q = values[9:]
    assert q[tree.groups["torsions"]] == pytest.approx(np.rad2deg([turned]), abs=1e-6)
    assert q[tree.groups["bends"]] == pytest.approx(np.rad2deg(bends), abs=1e-6)
    assert q[tree.groups["stretches"]] == pytest.approx(stretches, abs=1e-6)
    units = [name.rpartition("_")[2] for name in head[9:]]
    assert units == ["nm" if c.motion == "stretch" else "deg" for c in tree.coordinates]
    assert len(set(head)) == len(head) and "rotor:C1-C2-C3-C4:A:BUT1_deg" in head


def test_frames_come_at_whole_multiples_of_the_interval(tmp_path):
    simulation = make_simulation()
    simulation.step(3)
    for name in FILES:
        simulation.reporters.append(TorsionReporter(tmp_path / name, 4))
    simulation.step(7)
    for reporter in simulation.reporters:
        assert reporter.describeNextReport(simulation) == {"steps": 2, "periodic": None, "include": []}
        reporter.close()
    assert [steps_in(tmp_path / name) for name in FILES] == [[4, 8], [4, 8]]


def test_times_have_nine_digits(tmp_path):
    simulation = make_simulation()
    simulation.context.setTime(0.1234567891234)
    report(simulation, tmp_path / "t.npz", 1, 1)
    with np.load(tmp_path / "t.npz") as table:
        assert table["time"].tolist() == [0.123956789]


def test_acceptance_is_no_number_without_metropolis(tmp_path):
    report(make_simulation(ptd.TorsionLangevinIntegrator), tmp_path / "t.csv", 2)
    assert list(csv.reader((tmp_path / "t.csv").read_text().splitlines()))[1][7] == "nan"


def test_files_without_coordinates_go_on_too(tmp_path):
    simulation = make_simulation()
    for append in (False, True):
        for name in FILES:
            report(simulation, tmp_path / name, 4, coordinates=False, append=append)
    assert (tmp_path / "t.csv").read_text().splitlines()[0] == ",".join(HEAD)
    assert steps_in(tmp_path / "t.csv") == [2, 4, 10, 12] and steps_in(tmp_path / "t.npz") == [6, 8, 14, 16]
    with np.load(tmp_path / "t.npz") as table:
        assert set(table.files) == {*NAMES, "rows_extent", "checksum"} and len(table["total"]) == 4
    assert row_width(simulation.tree, False) == 9 and row_width(simulation.tree) == 9 + simulation.tree.n_coordinates


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("keep", "expected"), [(None, [2, 4, 6, 8]), (2, [2, 4, 8]), (1, [2, 8]), (0, [8])])
def test_a_finished_file_goes_on_behind_the_frames_that_are_kept(tmp_path, name, keep, expected):
    """All of them unless a number is given; their numbers stay."""
    simulation = make_simulation()
    report(simulation, tmp_path / name, 6)
    before = (tmp_path / name).read_bytes() if name == "t.csv" else dict(np.load(tmp_path / name))
    report(simulation, tmp_path / name, 2, append=True, keep=keep)
    assert steps_in(tmp_path / name) == expected
    kept = len(expected) - 1
    if name == "t.csv":
        lines = before.splitlines(True)
        assert (tmp_path / name).read_bytes().startswith(b"".join(lines[: kept + 1]))
    else:
        with np.load(tmp_path / name) as after:
            for key in ("total", "torsions", "bends", "stretches"):
                assert np.array_equal(after[key][:kept], before[key][:kept]) and len(after[key]) == kept + 1


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_replaced_unless_told_to_go_on(tmp_path, name):
    simulation = make_simulation()
    report(simulation, tmp_path / name, 4)
    report(simulation, tmp_path / name, 2)
    assert steps_in(tmp_path / name) == [6]
    (tmp_path / "t.npz.rows").write_bytes(b"of a run that was killed")
    report(simulation, tmp_path / name, 2)
    assert steps_in(tmp_path / name) == [8]


@pytest.mark.parametrize("name", FILES)
def test_a_killed_run_goes_on_behind_its_whole_frames(tmp_path, name):
    """The last row is cut within; frames are in the file as soon as they are reported."""
    simulation = make_simulation()
    stream = tmp_path / (name if name == "t.csv" else "t.npz.rows")
    report(simulation, tmp_path / name, 6, close=False)
    whole = stream.read_bytes()
    stream.write_bytes(whole[:-5])
    if name == "t.npz":
        assert len(whole) == 3 * 8 * row_width(simulation.tree)
        assert read_torsions(tmp_path / name, simulation.tree)["step"].tolist() == [2, 4]
    report(simulation, tmp_path / name, 2, append=True)
    assert steps_in(tmp_path / name) == [2, 4, 8] and not (tmp_path / "t.npz.rows").exists()


@pytest.mark.parametrize("name", FILES)
def test_fewer_frames_than_are_to_be_kept_are_refused(tmp_path, name):
    simulation = make_simulation()
    report(simulation, tmp_path / name, 4)
    with pytest.raises(CheckpointError, match=rf"{name} holds 2 frames, fewer than the 3 to go on from"):
        report(simulation, tmp_path / name, 2, append=True, keep=3)
    with pytest.raises(CheckpointError, match="holds 0 frames, fewer than the 1"):
        report(simulation, tmp_path / f"other-{name}", 2, append=True, keep=1)
    report(simulation, tmp_path / f"new-{name}", 2, append=True)  # nothing to go on from is nothing to keep
    assert len(steps_in(tmp_path / f"new-{name}")) == 1


def test_a_csv_file_with_other_columns_is_refused(tmp_path):
    simulation = make_simulation()
    report(simulation, tmp_path / "t.csv", 2, coordinates=False)
    with pytest.raises(ArgumentError, match="holds other columns"):
        report(simulation, tmp_path / "t.csv", 2, append=True)
    assert steps_in(tmp_path / "t.csv") == [2]


def test_rows_are_read_before_the_file_beside_them_and_are_those_of_the_table(tmp_path):
    simulation = make_simulation()
    tree = simulation.tree
    reporter = report(simulation, tmp_path / "t.npz", 4, close=False)
    rows = np.fromfile(tmp_path / "t.npz.rows").reshape(2, -1)
    (tmp_path / "t.npz").write_bytes(b"of an earlier run")
    early = read_torsions(tmp_path / "t.npz", tree)
    reporter.close()
    reporter.close()  # nothing more to do
    late = read_torsions(tmp_path / "t.npz", tree)
    assert set(late) - set(early) == {"rows_extent"} and all(np.array_equal(early[key], late[key]) for key in early)
    assert late["rows_extent"].tolist() == list(extent_of_bytes(rows.tobytes()))
    assert np.array_equal(rows_of_table("t.npz", late, tree), rows)
    for name, places in tree.groups.items():
        assert np.array_equal(late[name], rows[:, 9:][:, places])
    assert np.array_equal(rows_of_table("t.npz", late, tree, coordinates=False), rows[:, :9])
    with pytest.raises(CheckpointError, match=r"t\.npz does not hold the soft coordinates of this run"):
        rows_of_table("t.npz", {**late, "bends": late["bends"][:, :1]}, tree)
    with pytest.raises(CheckpointError, match="does not hold the soft coordinates"):
        rows_of_table("t.npz", {key: value for key, value in late.items() if key != "torsions"}, tree)


def test_a_reporter_that_was_never_asked_touches_nothing(tmp_path):
    for name in FILES:
        (tmp_path / name).write_text("mine")
        TorsionReporter(tmp_path / name, 5).close()
        assert (tmp_path / name).read_text() == "mine"
    with pytest.raises(ArgumentError, match="interval is -1"):
        TorsionReporter(tmp_path / "t.csv", -1)


def test_groups_without_members_have_columns_of_their_kind(tmp_path):
    """Of butane with rigid bonds and angles."""
    tree = butane.make_tree()
    integrator = ptd.TorsionLangevinIntegrator(tree, 300.0, 5.0, 0.002, seed=1)
    simulation = ptd.TorsionSimulation(butane.make_topology(), butane.make_system(), integrator, "Reference")
    report(simulation, tmp_path / "t.npz", 2)
    table = read_torsions(tmp_path / "t.npz", tree)
    for one, many in (("torsion", "torsions"), ("phase", "phases"), ("bend", "bends"), ("stretch", "stretches")):
        n = {"torsions": 1}.get(many, 0)
        assert table[many].shape == (1, n)
        assert all(
            len(table[f"{one}_{field}"]) == n for field in ("kind", "chain", "residue_name", "residue_id", "residue")
        )
