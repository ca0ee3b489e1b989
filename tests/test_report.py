"""The HTML report: what it says of finished, interrupted and killed runs, that nothing escapes it, and its size."""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import sys
from html.parser import HTMLParser

import mdtraj
import numpy as np
import pytest
from markupsafe import escape
from real_structures import DATA
from report_runs import QUICK, belong_together, make_interrupted, make_killed, make_run

import peptidyn as ptd
from peptidyn.analysis.report import read_run, write_report
from peptidyn.analysis.report.viewer import view_data
from peptidyn.analysis.step_limits import estimate_periods, shortest_half
from peptidyn.analysis.transitions import count_transitions, well_of
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError
from peptidyn.core.sealed_files import read_sealed_json, read_sealed_text, write_sealed_json, write_sealed_text
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.simulation import TorsionSimulation

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return make_run(DATA / "ala3.pdb", tmp_path_factory.mktemp("report") / "finished", "--ensemble", "ghmc")


class Page(HTMLParser):
    """Elements and addresses of a page, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.scripts, self._in = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.addresses += [v for k, v in attrs if k in ("src", "href", "data", "action")]
        if tag == "script":
            self.scripts.append("")
            self._in = tag

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in:
            self.scripts[-1] += data


def section(text, key):
    return re.search(rf'<section role="tabpanel" id="panel-{key}".*?</section>', text, flags=re.S)[0]


def test_report_of_a_finished_run(finished, drawn_pictures, capsys):
    assert main(["report", str(finished)]) == 0
    out = capsys.readouterr()
    assert "report.html" in out.out and out.err == ""
    text = (finished / "report.html").read_text()
    page = Page(text)
    # everything is inside: pictures are data, nothing is loaded, and the page forbids it too
    assert page.addresses and all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert min(map(len, page.addresses)) > 5000  # none is blank
    assert "default-src 'none'" in text
    assert [a["id"] for t, a in page.tags if a.get("role") == "tab"] == [
        f"tab-{key}" for key in ("overview", "energy", "torsions", "structure", "fixman", "step", "view")
    ]
    overview = section(text, "overview")
    for phrase in ("The run is complete", "ghmc", "<td>vacuum</td>", "8.", "42", "seed"):
        assert phrase in overview
    assert "Acceptance rate of all proposals" in section(text, "energy")
    assert section(text, "torsions").count(" of chain A, residue ALA ") == 6
    structure = section(text, "structure")
    for phrase in ("RMSD (nm)", "radius of gyration (nm)", "helix content", "hydrogen bonds", "by DSSP", "alpha"):
        assert phrase in structure
    assert "effective sample size" in section(text, "fixman")
    assert "steps per period" in section(text, "step")
    # the licence of the viewer library goes with it
    assert "University of Pittsburgh" in text and "$3Dmol" in text


def test_energies_add_up(finished):
    """The mean total is the sum of its parts, U_F among them; without U_F there is no such row."""
    rows = re.findall(
        r"<tr><td>([^<]*) \(kJ/mol\)</td><td[^>]*>([^<]*)</td>", section(write_report(finished).read_text(), "energy")
    )
    mean = {name: float(value) for name, value in rows}
    assert list(mean) == ["potential", "kinetic", "Fixman, U_F", "total"]
    assert mean["total"] == pytest.approx(mean["potential"] + mean["kinetic"] + mean["Fixman, U_F"], abs=0.02)


def test_populations_of_torsions(finished):
    """The parts of all wells of a torsion add up to one, and are counted as by hand."""
    table = read_run(finished).table
    texts = re.findall(r"<td>([-0-9]+: [^<]*)</td>", section(write_report(finished).read_text(), "torsions"))
    assert len(texts) == 6
    psi = np.rad2deg(table["torsions"][:, 1])
    parts = [[float(x) for x in re.findall(r": ([\d.]+)", text)] for text in texts]
    assert all(sum(part) == pytest.approx(1.0, abs=0.02) for part in parts)
    near = (np.abs((psi + 40 + 180) % 360 - 180) < np.abs((psi - 150 + 180) % 360 - 180)).mean()
    assert table["torsion_kind"][1] == "psi" and max(parts[1]) == pytest.approx(max(near, 1 - near), abs=0.01)


def test_the_view_holds_the_trajectory(finished):
    run = read_run(finished)
    data, notes = view_data(run)
    packed = np.frombuffer(base64.b64decode(data["frames"]), dtype="<i2").reshape(-1, data["atoms"], 3)
    frames = mdtraj.load(finished / "trajectory.dcd", top=finished / "topology.pdb")
    assert (
        packed.shape == (15, 42, 3)
        and notes == []
        and data["pdb"].count("\nATOM") + data["pdb"].count("\nHETATM") == 42
    )
    for shown, frame in zip(packed * data["scale"] / 10, frames.xyz, strict=True):
        distance = np.linalg.norm(shown[:, None] - shown[None], axis=-1)
        assert np.abs(distance - np.linalg.norm(frame[:, None] - frame[None], axis=-1)).max() < 1e-4
    assert data["times"][0] == pytest.approx(0.032) and data["times"][-1] == pytest.approx(0.48)


def test_large_trajectories_are_thinned(finished, tmp_path):
    few, notes = view_data(read_run(finished), most_bytes=5 * 42 * 6)
    assert len(few["times"]) == 5 and "Every 3rd frame is shown, 5 of 15" in notes[0]
    path = write_report(finished, tmp_path / "small.html", most_bytes=5 * 42 * 6)
    assert "Every 3rd frame" in path.read_text()
    assert few["times"][1] == pytest.approx(0.032 * 4)


def test_interrupted_run(tmp_path, capsys, monkeypatch):
    step = TorsionSimulation.step

    def interrupted_step(self, steps):
        if self.currentStep >= 20:
            signal.raise_signal(signal.SIGINT)
        step(self, steps)

    monkeypatch.setattr(TorsionSimulation, "step", interrupted_step)
    folder = tmp_path / "stopped"
    assert main(["run", str(DATA / "ala1.pdb"), *QUICK, "--steps", "60", "-q", "-o", str(folder)]) == 130
    monkeypatch.undo()
    capsys.readouterr()
    assert main(["report", str(folder), "-q"]) == 0
    text = (folder / "report.html").read_text()
    assert "was interrupted and can be continued" in text and "stopped" in text
    assert "There are too few frames to estimate periods" in section(text, "step")


def test_killed_run(finished, tmp_path):
    run = read_run(make_killed(finished, tmp_path / "killed", 11))
    whole = read_run(finished)
    assert run.ending == "killed" and run.n_frames == 11
    assert np.array_equal(run.q, whole.q[:11])
    text = write_report(run.path).read_text()
    assert "was killed, or is still running" in text
    assert "frame of 11" not in text and '"times": [0.032' in text


def test_interrupted_flag(finished, tmp_path):
    assert read_run(make_interrupted(finished, tmp_path / "stopped")).ending == "interrupted"
    assert read_run(finished).ending == "finished"


@pytest.mark.parametrize("ensemble", ["nve", "langevin"])
def test_other_ensembles(tmp_path, ensemble):
    folder = make_run(DATA / "ala1.pdb", tmp_path / "run", "--ensemble", ensemble, "--no-fixman")
    text = write_report(folder).read_text()
    assert "weights below remove the bias" in section(text, "fixman")
    assert ("The energy drifts by" in text) == (ensemble == "nve")
    assert "Fixman, U_F" not in section(text, "energy")
    assert f"The {ensemble} ensemble makes no proposals" in text


def test_flexible_run(tmp_path):
    """Joint inertias, phases and bond lengths are part of what is read; the page says what was sampled."""
    folder = make_run(DATA / "ala1.pdb", tmp_path / "run", "--preset", "flexible")
    run = read_run(folder)
    assert run.tree.joint_inertia.any() and run.q.shape == (15, 60)
    energies = ptd.FixmanPotential(run.tree, run.settings.temperature).energies(run.q)
    assert np.abs(energies - run.table["fixman"]).max() < 1e-3 < 0.1 * np.ptp(energies)  # masses differ in the digits
    overview = section(write_report(folder).read_text(), "overview")
    assert "the force field&#39;s own: nothing is fixed" in overview and "rates are not physical" in overview
    assert run.tree.describe_coordinates() in overview and "21 stretches" in overview


def test_the_fixman_energies_are_those_of_the_run(finished):
    """Recomputed from tree and coordinates they equal what the integrator reported, but for a constant.

    The constant is that of masses, which the System has with other digits than the table of elements.
    """
    run = read_run(finished)
    energies = ptd.FixmanPotential(run.tree, run.settings.temperature).energies(run.q)
    difference = energies - run.table["fixman"]
    assert abs(difference.mean()) < 1e-3 and np.ptp(difference) < 1e-5


EVIL = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">'


def test_names_are_escaped(finished, tmp_path):
    """File name, residue names, chain and notes with HTML in them stay text."""
    folder = tmp_path / "evil"
    shutil.copytree(finished, folder)
    toml, atoms = (read_sealed_text(folder / name) for name in ("run.toml", "topology.cif"))
    toml = re.sub("^file = .*$", lambda _: f"file = {json.dumps(EVIL)}", toml, flags=re.M)
    write_sealed_text(folder / "run.toml", toml)
    summary = read_sealed_json(folder / "summary.json")
    write_sealed_json(folder / "summary.json", {**summary, "notes": [EVIL], "openmm": EVIL, "platform": "<b>"})
    # a residue name of three letters that is HTML
    write_sealed_text(folder / "topology.cif", atoms.replace("ACE", "<i>"))
    belong_together(folder)
    text = write_report(folder).read_text()
    page = Page(text)
    assert not [a for t, a in page.tags if t == "img" and not a["src"].startswith("data:image/png")]
    assert len(page.scripts) == 3  # the data, the library, the page's own
    assert not any(tag in ("b", "i") for tag, _ in page.tags)
    assert not any("hacked" in script for script in page.scripts)
    data = json.loads(page.scripts[0])
    assert "<i>" in data["pdb"] and "<" not in page.scripts[0]
    assert text.count(str(escape(EVIL))) == 3  # the setting, the note and the version of OpenMM


def test_refusals(finished, tmp_path, capsys):
    with pytest.raises(ArgumentError, match="no folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(ArgumentError, match=r"no run.toml"):
        read_run(tmp_path)
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    (exchange / "exchange.toml").write_text("")
    with pytest.raises(ArgumentError, match="holds a replica exchange run"):
        read_run(exchange)
    empty = tmp_path / "empty"
    shutil.copytree(finished, empty)
    (empty / "torsions.npz").unlink()
    with pytest.raises(ArgumentError, match="no frame"):
        read_run(empty)
    with pytest.raises(ArgumentError, match="reported 1 frames"):
        read_run(make_killed(finished, tmp_path / "one", 1))
    shutil.copytree(finished, tmp_path / "reported")
    there, own = tmp_path / "there.html", tmp_path / "reported" / "report.html"
    for target, arguments in ((there, [str(finished), "-o", str(there)]), (own, [str(own.parent)])):
        target.write_text("mine")
        assert main(["report", *arguments]) == 2
        assert "--overwrite" in capsys.readouterr().err and target.read_text() == "mine"
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "no folder" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["matplotlib.figure", "jinja2"])
def test_without_a_library(finished, tmp_path, capsys, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    target = tmp_path / "report.html"
    assert main(["report", str(finished), "-o", str(target)]) == 2
    assert 'pip install "peptidyn[plots]"' in capsys.readouterr().err and not target.exists()


# ---------------------------------------------------------------------------- what is counted and estimated


def test_transitions_need_the_core_of_another_well():
    psi = [-40, -10, 30, 60, 90, 40, -30, 60, 150, 170, -170, 80, -40]
    assert well_of(psi, "psi").tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0]
    assert count_transitions(psi, "psi") == 2
    assert count_transitions([60, 70, 120, 180, -175, -60, 59], "chi1") == 3
    assert count_transitions([100, 120, 130], "chi1") == 0
    assert count_transitions([179, -179, 178], "omega") == 0


def test_spread_within_a_well():
    rng = np.random.default_rng(3)
    one = rng.normal(np.pi, 0.1, (4000, 1))  # across the seam of the circle
    two = np.where(rng.random((4000, 1)) < 0.8, rng.normal(1.0, 0.1, (4000, 1)), rng.normal(3.0, 0.1, (4000, 1)))
    assert shortest_half(one)[0] == pytest.approx(0.1, rel=0.1)
    assert shortest_half(two)[0] == pytest.approx(0.1, rel=0.5)


def test_periods_of_harmonic_torsions():
    """Thermal samples of a torsion with stiffness k have the period 2 pi sqrt(I/k) with 1/I = (M^-1)_ii."""
    tree = ptd.build_tree(ptd.build_peptide("A"), soft="phi psi")
    kT, k, rng = BOLTZMANN * 300, np.array([80.0, 320.0]), np.random.default_rng(1)
    q = tree.reference.q + rng.normal(0, np.sqrt(kT / k), (4000, 2))
    inverse = np.linalg.inv(ptd.mass_matrix(tree, tree.reference))
    expected = 2 * np.pi / np.sqrt(k * np.diag(inverse)[tree.coordinate_dof])
    assert estimate_periods(tree, q, 300.0, frames=20) == pytest.approx(expected, rel=0.15)


def test_periods_follow_from_the_mean_of_the_inverse_mass_matrix():
    """Torsions of a chain turn more or less easily where it is coiled; frames along the path count alike."""
    tree = ptd.bead_chain(6, 0.15, 1.9, 12.0)
    q = np.linspace([3.1, 3.0, 2.9], [0.9, 1.0, 1.1], 11)
    first, middle, last = (
        np.diag(np.linalg.inv(ptd.mass_matrix(tree, tree.reference.replace(q=q[i]))))[tree.coordinate_dof]
        for i in (0, 5, 10)
    )
    assert np.abs(last / first - 1.0).max() > 0.1
    expected = 2 * np.pi * shortest_half(q) / np.sqrt(BOLTZMANN * 400.0 * (first + middle + last) / 3)
    assert estimate_periods(tree, q, 400.0, frames=3) == pytest.approx(expected, rel=1e-9)
