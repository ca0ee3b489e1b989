"""The report of replica exchange, and trajectories of one temperature, against the files of the replicas."""

from __future__ import annotations

import csv
import importlib
import json
import re
import shutil

import mdtraj
import numpy as np
import pytest
from butane_exchange import make
from real_structures import DATA

import peptidyn as ptd
from peptidyn.analysis.report import write_report
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError, CheckpointError
from peptidyn.runs import exchange_run
from peptidyn.runs.exchange_run import ExchangeRun

pytestmark = pytest.mark.usefixtures("blank_pictures")

QUICK = ("--solvent", "vacuum", "--platform", "Reference", "--seed", "5", "--warm-up", "0", "--interval", "10", "-q")


@pytest.fixture(scope="module")
def peptide(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exchange") / "ala3"
    ladder = ("--replicas", "3", "--tmin", "300", "--tmax", "600", "--iterations", "8")
    assert main(["exchange", str(DATA / "ala3.pdb"), *QUICK, *ladder, "-o", str(folder)]) == 0
    return folder


def section(text, key):
    return re.search(rf'<section role="tabpanel" id="panel-{key}".*?</section>', text, flags=re.S)[0]


def cells(html):
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html, flags=re.S)]


def test_report(peptide, drawn_pictures, capsys):
    assert main(["report", str(peptide)]) == 0
    assert "report.html" in capsys.readouterr().out
    text = (peptide / "report.html").read_text()
    run = ExchangeRun(peptide)
    overview = section(text, "overview")
    assert "The run is complete." in overview and f"<td>{run.force_calls}</td>" in overview
    assert "300.0, 424.3, 600.0" in overview and "the rigid model" in overview
    # round trips and visits, counted again from the table of exchanges
    with open(peptide / "exchanges.csv") as file:
        walk = np.array([[int(x) for x in row[1:4]] for row in list(csv.reader(file))[1:]])
    rows = [row for row in cells(section(text, "exchange")) if len(row) == 4]
    assert [int(row[2]) for row in rows] == (walk == 0).sum(axis=0).tolist()
    assert [int(row[3]) for row in rows] == (walk == 2).sum(axis=0).tolist()
    # mean energies from the files of the replicas
    energies = np.concatenate([np.load(peptide / f"replica-{r:02d}/energies.npy") for r in range(3)])
    rows = [row for row in cells(section(text, "energy")) if len(row) == 5]
    for level, row in enumerate(rows):
        here = energies["potential"][energies["level"] == level]
        assert int(row[1]) == len(here) == 8 and float(row[2]) == pytest.approx(here.mean(), abs=0.006)
    melting = section(text, "melting")
    assert "helix content" in melting and "radius of gyration" in melting and "24 of 24 frames" in melting
    assert "(DSSP)" not in melting and "Secondary structure" in section(text, "structure")
    view = json.loads(re.search(r'id="view-data">(.*?)</script>', text)[1])
    assert view["times"] == list(range(8)) and (view["before"], view["after"]) == ("iteration ", "")
    # pictures are there, and nothing is loaded
    assert min(map(len, re.findall(r'src="(data:image/png[^"]*)"', text))) > 5000
    assert not re.findall(r'(?:src|href)="(?!data:)', text)


def test_the_melting_table_is_that_of_the_frames(peptide, tmp_path):
    """Radius of gyration at every temperature, from the trajectory that `extract` writes."""
    rows = [row for row in cells(section(write_report(peptide).read_text(), "melting")) if len(row) == 6]
    assert len(rows) == 3
    for row in rows:
        path = tmp_path / "one.xtc"
        exact = {300.0: 300.0, 424.3: 300.0 * 2**0.5, 600.0: 600.0}[float(row[0])]
        assert ExchangeRun(peptide).write_trajectory(path, exact) == 8
        frames = mdtraj.load(path, top=peptide / "topology.pdb")
        value, error = re.fullmatch(r"([\d.]+)\((\d+)\)", row[3]).groups()
        assert float(value) == pytest.approx(ptd.radius_of_gyration(frames).mean, abs=2e-4) and 1 <= int(error) <= 99


def test_extract_follows_the_temperature(peptide, tmp_path, capsys):
    out, warm = tmp_path / "cold.dcd", tmp_path / "warm.dcd"
    assert main(["extract", str(peptide), "-o", str(out)]) == 0
    assert "8 frames at 300.0 K" in capsys.readouterr().out
    assert main(["extract", str(peptide), "-T", "424.3", "-o", str(warm)]) == 0
    assert "8 frames at 424.3 K" in capsys.readouterr().out
    replicas = [
        mdtraj.load(peptide / f"replica-{r:02d}/trajectory.dcd", top=peptide / "topology.pdb") for r in range(3)
    ]
    walk = ExchangeRun(peptide).walk
    assert len({*walk[:, 0].tolist()}) > 1, "no exchange: nothing would be tested"
    for level, file in enumerate((out, warm)):
        for iteration, frame in enumerate(mdtraj.load(file, top=peptide / "topology.pdb").xyz):
            holder = int(np.flatnonzero(walk[iteration] == level)[0])
            assert np.array_equal(frame, replicas[holder].xyz[iteration])
    assert main(["extract", str(peptide), "-T", "310", "-o", str(tmp_path / "no.dcd")]) == 2
    error = capsys.readouterr().err
    assert "--temperature 310" in error and "300.0, 424.3, 600.0" in error
    assert main(["extract", str(peptide), "-o", str(out)]) == 2 and "--overwrite" in capsys.readouterr().err
    assert main(["extract", str(peptide), "-o", str(tmp_path / "x.pdb")]) == 2
    assert ".dcd or .xtc" in capsys.readouterr().err


def test_run_of_the_library_that_goes_on(tmp_path):
    """Several frames per iteration, no settings, no summary; frames beyond the checkpoint do not count."""
    folder = tmp_path / "butane"
    with make(folder, every=1) as exchange:
        exchange.run(1)
        with pytest.raises(ArgumentError, match="1 iterations, too few"):
            write_report(folder)
        exchange.run(5)
        text = write_report(folder).read_text()
        run = ExchangeRun(folder)
        rows, _ = exchange.at_temperature(1)
        assert np.array_equal(run.energies(1), rows) and len(rows) == 10
        assert np.array_equal(run.walk, exchange.walk) and np.array_equal(run.round_trips, exchange.round_trips)
        assert run.acceptance == pytest.approx(exchange.acceptance, nan_ok=True)
        frames = run.frames(run.places(1))
        assert frames.xyz.shape == (10, 4, 3)
        small = write_report(folder, tmp_path / "small.html", most_bytes=5 * 4 * 6)
        assert small == tmp_path / "small.html" and "Every 2nd frame is shown, 5 of 10" in small.read_text()
        assert "frame is shown" not in text and write_report(folder) == folder / "report.html"
    assert "No residue has a backbone" in text and "helix content" not in text and "butane" in text
    assert run.settings is None and "--resume" not in text


def test_moves_and_force_calls_are_those_of_the_run(tmp_path):
    with make(tmp_path / "butane") as exchange:
        exchange.run(3)
    run = ExchangeRun(tmp_path / "butane")
    counts = np.array(run._about["move_counts"])  # level, move; proposed, accepted, force calls
    assert (counts[..., 0] == 6).all() and (counts[..., 1] <= 6).all()  # two sweeps in each of three iterations
    assert np.array_equal(run.move_acceptance, counts[..., 1] / 6)
    assert run.force_calls == counts[..., 2].sum() > counts[..., 0].sum()


def test_frames_beyond_the_checkpoint(tmp_path):
    folder = tmp_path / "butane"
    with make(folder) as exchange:
        exchange.run(3)
        checkpoint = (folder / "checkpoint.npz").read_bytes()
        exchange.run(5)
    (folder / "checkpoint.npz").write_bytes(checkpoint)
    run = ExchangeRun(folder)
    assert run.n_frames == 3 and run.rows.shape == (3, 3) and len(run.walk) == 3
    assert len(run.frames(run.places(0))) == 3
    with open(folder / "exchanges.csv", "ab") as file:
        file.write(b"\x9b\xff junk")
    assert (ExchangeRun(folder).walk == run.walk).all()


def test_box_is_kept(tmp_path, monkeypatch):
    """Trajectories of one temperature have the box of the replicas."""
    from butane import make_system, make_topology, make_tree

    system, topology = make_system(), make_topology()
    box = np.diag([3.0, 4.0, 5.0])
    system.setDefaultPeriodicBoxVectors(*box)
    topology.setPeriodicBoxVectors(box)
    with ptd.ReplicaExchange(
        make_tree(), system, [300, 400], moves=[ptd.TorsionMove()], sweeps=1, platform="Reference",
        folder=tmp_path / "x", topology=topology,
    ) as exchange:  # fmt: skip
        exchange.run(2)
    monkeypatch.setattr(exchange_run, "CHUNK", 1)  # more frames than are in memory at a time
    for name in ("a.dcd", "a.xtc"):
        run = ExchangeRun(tmp_path / "x")
        run.write_trajectory(tmp_path / name)
        frames = mdtraj.load(tmp_path / name, top=tmp_path / "x" / "topology.pdb")
        assert frames.unitcell_lengths == pytest.approx(np.tile([3.0, 4.0, 5.0], (2, 1)), rel=1e-5)
        if name == "a.xtc":
            assert frames.time.tolist() == run.energies(0)["iteration"].tolist()
            assert frames.time[1] > frames.time[0]


def test_a_run_without_its_summary_or_its_settings(peptide, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(peptide, folder)
    (folder / "exchange.toml").unlink()
    with pytest.raises(
        CheckpointError, match=r"copy has lost exchange\.toml, the settings that summary\.json .* belongs"
    ):
        write_report(folder)
    shutil.copy(peptide / "exchange.toml", folder)
    (folder / "summary.json").unlink()
    text = write_report(folder).read_text()
    assert "interrupted or killed, or is still running" in text and ExchangeRun(folder).ending == "unfinished"


def test_damage_is_told_before_anything_is_computed(peptide, tmp_path, monkeypatch):
    folder = tmp_path / "copy"
    shutil.copytree(peptide, folder)
    (folder / "summary.json").write_text("{")
    page = importlib.import_module("peptidyn.analysis.report.exchange_page")  # its package has a function of that name
    for name in ("exchange_figures", "_melting", "_lowest"):
        monkeypatch.setattr(page, name, None)
    with pytest.raises(CheckpointError, match=r"summary\.json is damaged"):
        write_report(folder)


def test_refusals(tmp_path):
    with pytest.raises(ArgumentError, match=r"no exchanges.csv"):
        ExchangeRun(tmp_path)
    with make(tmp_path / "begun"):
        pass
    with pytest.raises(ArgumentError, match="no frame yet"):
        write_report(tmp_path / "begun")
