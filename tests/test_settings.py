"""Settings of runs and of replica exchange: what is accepted, what defaults follow from it, how sources are merged."""

from __future__ import annotations

import os
from dataclasses import fields

import pytest

from peptidyn.core.errors import ArgumentError
from peptidyn.runs.presets import PRESETS, preset_for_step
from peptidyn.runs.settings import (
    ExchangeSettings,
    RunSettings,
    parse_time,
    read_toml,
    resolve_settings,
)

BOTH = [RunSettings, ExchangeSettings]


def fs(settings):
    return round(1e3 * settings.timestep_ps, 9)


# ---------------------------------------------------------------------------- numbers

SMALLEST_AND_LARGEST = {
    "timestep": (1e-9, 1e3), "cutoff": (1e-9, 100.0), "hydrogen_mass": (1e-9, 1e3), "friction": (0.0, 1e6),
    "pH": (0.0, 14.0), "seed": (0, 2**63 - 1), "threads": (1, 4096), "model": (0, 10**9),
}  # fmt: skip
"""Of both kinds of runs."""

OF_RUNS = {"temperature": (1e-9, 1e5), "steps": (1, 10**12), "pivots": (0, 10**12)}

OF_EXCHANGE = {
    "replicas": (2, 10_000), "iterations": (1, 10**12), "interval": (1, 10**12), "warm_up": (0, 10**12),
    "pivots": (0, 10**12),
}  # fmt: skip

IN_WATER = {"padding": (1e-9, 100.0), "ions": (0.0, 10.0)}


def beyond(number, sign):
    """Return a number next to one: the next whole number, or one a little smaller or larger."""
    return number + sign if isinstance(number, int) else number + sign * max(1e-9, 1e-6 * number)


@pytest.mark.parametrize(
    ("kind", "name", "bounds", "others"),
    [(kind, name, bounds, {}) for kind in BOTH for name, bounds in SMALLEST_AND_LARGEST.items()]
    + [(RunSettings, name, bounds, {}) for name, bounds in OF_RUNS.items()]
    + [(ExchangeSettings, name, bounds, {}) for name, bounds in OF_EXCHANGE.items()]
    + [(RunSettings, name, bounds, {"solvent": "tip3p"}) for name, bounds in IN_WATER.items()]
    + [(RunSettings, "pressure", (1e-9, 1e6), {"solvent": "tip3p"})],
)
def test_bounds_of_numbers(kind, name, bounds, others):
    """The smallest and the largest are accepted, those beyond them refused; both with a step that is always given."""
    others = {"timestep": 1.0, **others} if name != "timestep" else {"steps": 1, "report": "1", "equilibrate": "0ps"}
    others = others if kind is RunSettings or name != "timestep" else {}
    for value in bounds:
        assert getattr(kind(**{**others, name: value}), name) == value
    for value in (beyond(bounds[0], -1), beyond(bounds[1], 1)):
        with pytest.raises(ArgumentError, match=rf"^{name} is .*, expected"):
            kind(**{**others, name: value})


def test_bounds_of_ladders():
    for tmin, tmax in ((0.0, 300.0), (-1.0, 300.0), (280.0, 1.1e5)):
        with pytest.raises(ArgumentError, match=r"^tm.. is .*, expected a positive number of at most 100000"):
            ExchangeSettings(tmin=tmin, tmax=tmax)
    for tmin in (300.0, 301.0):
        with pytest.raises(ArgumentError, match="no ladder"):
            ExchangeSettings(tmin=tmin, tmax=300.0)


def test_a_number_too_large_to_print_is_described():
    with pytest.raises(ArgumentError, match="seed is a whole number of 20001 bits, expected at most"):
        RunSettings(seed=2**20000)
    with pytest.raises(ArgumentError, match=r"solvent is 'x{39}\.\.\. \(102 characters\), expected one of"):
        RunSettings(solvent="x" * 100)


# ---------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("kind", "name", "right", "wrong"),
    [
        (RunSettings, "preset", tuple(PRESETS), "rigid"),
        (RunSettings, "metric", ("physical", "auto"), "fast"),
        (RunSettings, "ensemble", ("langevin", "nve", "ghmc"), "npt"),
        (RunSettings, "trajectory", ("dcd", "xtc"), "pdb"),
        (RunSettings, "solvent", ("obc2", "gbn2", "vacuum", "tip3p", "tip4pew"), "explicit"),
        (ExchangeSettings, "ensemble", ("ghmc", "langevin"), "nve"),
        (ExchangeSettings, "metric", ("physical", "auto"), "none"),
    ],
)
def test_words(kind, name, right, wrong):
    for word in right:
        assert getattr(kind(**{name: word}), name) == word
    with pytest.raises(ArgumentError, match=rf"{name} is '{wrong}', expected one of {', '.join(right[:2])}"):
        kind(**{name: wrong})


@pytest.mark.parametrize(
    ("given", "phrase"),
    [
        ({"frame": 0}, "a frame belongs to"),
        ({"padding": 1.0}, "padding and ions belong to a box of water and the solvent is obc2"),
        ({"ions": 0.1}, "padding and ions belong to a box of water"),
        ({"file": "x.prmtop", "solvent": "explicit", "padding": 1.0}, "padding and ions belong to a box of water"),
        ({"file": "x.prmtop", "solvent": "explicit", "ions": 0.1}, "padding and ions belong to a box of water"),
        ({"coordinates": "x.rst7"}, "belong to prmtop, psf and top files"),
        ({"parameters": ("x.par",)}, "belong to prmtop, psf and top files"),
        ({"include": "x"}, "belong to prmtop, psf and top files"),
        ({"file": "x.prmtop", "select": "protein"}, "brings its own parameters"),
        ({"file": "x.prmtop", "forcefield": "amber19"}, "brings its own parameters"),
        ({"file": "x.psf", "solvent": "tip3p"}, "solvent is 'tip3p', expected one of explicit, vacuum, obc2"),
    ],
)
@pytest.mark.parametrize("kind", BOTH)
def test_settings_that_do_not_fit_together(kind, given, phrase):
    with pytest.raises(ArgumentError, match=phrase):
        kind(**given)


@pytest.mark.parametrize(
    ("given", "phrase"),
    [
        ({"time": "1ps", "steps": 1}, "as time or as steps, not both"),
        ({"time": "1 parsec"}, "time is '1 parsec', expected a time with its unit"),
        ({"report": "1 parsec"}, "report is '1 parsec', expected a time with its unit"),
        ({"equilibrate": "1 parsec"}, "equilibrate is '1 parsec', expected a time with its unit"),
        ({"report": "9" * 14}, "expected at most 1000000000000 steps"),
        ({"time": "1e9us"}, r"time is '1e9us': 1.2e\+17 steps, expected at most 1e\+12"),
        ({"time": "3fs"}, "time is '3fs', less than half a step of 8 fs"),
        ({"pressure": 1.0}, "needs explicit water and a heat bath, and this run has the solvent obc2"),
        ({"pressure": 1.0, "solvent": "tip3p", "ensemble": "nve"}, "and the ensemble nve"),
        ({"pivots": 1, "fixman": False}, "pivot moves need a heat bath and the Fixman potential"),
        ({"pivots": 1, "ensemble": "nve", "fixman": True}, "pivot moves need a heat bath and the Fixman potential"),
        ({"pivots": 1, "solvent": "tip3p"}, "pivot moves turn the chain through the waters of tip3p"),
        ({"pivots": 1, "solvent": "explicit", "file": "x.prmtop"}, "through the waters of explicit"),
    ],
)
def test_settings_of_a_run_that_do_not_fit_together(given, phrase):
    with pytest.raises(ArgumentError, match=phrase):
        RunSettings(**given)


@pytest.mark.parametrize(
    ("given", "phrase"),
    [
        ({"exact": True, "ensemble": "langevin"}, "exact sampling needs Metropolised moves"),
        ({"exact": True, "solvent": "tip3p"}, "exact sampling moves every atom and the waters of tip3p are rigid"),
        ({"exact": True, "solvent": "explicit", "file": "x.top"}, "the waters of explicit are rigid"),
        ({"pivots": 1, "solvent": "tip3p"}, "pivot moves turn the chain through the waters of tip3p"),
    ],
)
def test_settings_of_replica_exchange_that_do_not_fit_together(given, phrase):
    with pytest.raises(ArgumentError, match=phrase):
        ExchangeSettings(**given)


def test_settings_that_fit_together():
    for given in (
        {"frame": 0, "start": "x"},
        {"pressure": 1.0, "solvent": "tip3p", "ensemble": "ghmc"},
        {"pressure": 1.0, "solvent": "explicit", "file": "x.prmtop"},
        {"pivots": 1, "ensemble": "ghmc"},
        {"pivots": 1, "fixman": True, "solvent": "vacuum"},
        {"file": "x.prmtop", "coordinates": "y", "parameters": ("z",), "include": "u", "solvent": "gbn2"},
    ):
        assert {name: getattr(RunSettings(**given), name) for name in given} == given
    assert ExchangeSettings(exact=True, pivots=3).exact and ExchangeSettings(solvent="tip3p", ensemble="langevin")


# ---------------------------------------------------------------------------- what follows from settings


@pytest.mark.parametrize(
    ("text", "ps"),
    [("250fs", 0.25), ("3ps", 3.0), (" 1.5 ns ", 1500.0), ("2us", 2e6), (".5ps", 0.5), ("1e2fs", 0.1),
     ("2.5E-1ps", 0.25), ("1e+1ps", 10.0)],
)  # fmt: skip
def test_times_in_all_units(text, ps):
    assert parse_time("time", text) == pytest.approx(ps, rel=1e-12)


@pytest.mark.parametrize("text", ["5", "ps", "-1ps", "1ms", "1 ps 2", "1.ps", "1e ps", ""])
def test_texts_that_are_no_times(text):
    with pytest.raises(ArgumentError, match=r"^report is .*, expected a time with its unit"):
        parse_time("report", text)


def test_lengths_in_steps():
    """Times are rounded to whole steps; the default length is 100 ps, equilibration 2 ps, a report every ps."""
    usual = RunSettings(timestep=4.0)
    assert (usual.n_steps, usual.equilibration_steps, usual.report_steps) == (25_000, 500, 250)
    short = RunSettings(timestep=4.0, time="7fs", equilibrate="7fs", report="7fs")
    assert (short.n_steps, short.equilibration_steps, short.report_steps) == (2, 2, 2)
    tiny = RunSettings(timestep=4.0, steps=7, equilibrate="1fs", report="1fs")
    assert (tiny.n_steps, tiny.equilibration_steps, tiny.report_steps) == (7, 0, 1)
    assert RunSettings(report="0").report_steps == 1 and RunSettings(report=" 30 ").report_steps == 30
    assert RunSettings(report=str(10**12)).report_steps == 10**12


@pytest.mark.parametrize(
    ("preset", "langevin", "ghmc", "physical"),
    [("torsions", 8.0, 8.0, 8.0), ("angles", 16.0, 24.0, 4.0), ("heavy", 16.0, 24.0, 1.0),
     ("flexible", 16.0, 16.0, 0.5)],
)  # fmt: skip
def test_default_steps(preset, langevin, ghmc, physical):
    """As in docs/timestep.md: those of Langevin dynamics are shorter above 300 K, and all at most 4 fs in water."""
    assert fs(RunSettings(preset=preset)) == langevin
    assert fs(RunSettings(preset=preset, ensemble="ghmc")) == fs(ExchangeSettings(preset=preset)) == ghmc
    assert fs(ExchangeSettings(preset=preset, ensemble="langevin", tmax=900.0)) == langevin
    assert fs(RunSettings(preset=preset, metric="physical")) == physical
    assert fs(RunSettings(preset=preset, ensemble="nve")) == physical
    assert fs(RunSettings(preset=preset, ensemble="nve", metric="auto")) == ghmc
    for ensemble, step in (("langevin", langevin), ("ghmc", ghmc)):
        assert fs(RunSettings(preset=preset, ensemble=ensemble, temperature=100.0)) == step
        assert fs(RunSettings(preset=preset, ensemble=ensemble, solvent="tip3p")) == min(4.0, step)
    hot = langevin if preset == "torsions" else round(langevin * (300.0 / 500.0) ** 0.5, 1)
    assert fs(RunSettings(preset=preset, temperature=500.0)) == hot
    assert fs(RunSettings(preset=preset, temperature=500.0, ensemble="ghmc")) == ghmc
    assert fs(RunSettings(preset=preset, solvent="tip3p", metric="physical")) == min(4.0, physical)
    assert fs(RunSettings(preset=preset, temperature=500.0, timestep=3.25)) == 3.25


@pytest.mark.parametrize(
    ("words", "preset"),
    [("phi", "torsions"), ("psi chi", "torsions"), ("omega", "torsions"), ("amide", "torsions"),
     ("methyl", "torsions"), ("phi omega amide methyl", "torsions"), ("polar", "angles"), ("angles", "angles"),
     ("phi polar angles", "angles"), ("heavy", "heavy"), ("heavy angles polar methyl", "heavy"), ("bonds", "flexible"),
     ("all", "flexible"), ("heavy bonds", "flexible")],
)  # fmt: skip
def test_words_have_the_step_of_the_most_flexible_kind_in_them(words, preset):
    assert preset_for_step(words) is PRESETS[preset]


def test_what_is_soft():
    """Waters are not, in presets that have bonds and angles of all; words stay as they are."""
    words = {"torsions": "phi psi chi", "angles": "phi psi chi omega angles", "heavy": "heavy", "flexible": "all"}
    for preset, soft in words.items():
        assert RunSettings(preset=preset).soft_words == soft
        wet = f"{soft} in not water" if preset in ("heavy", "flexible") else soft
        assert RunSettings(preset=preset, solvent="tip3p").soft_words == wet
        assert RunSettings(preset=preset, solvent="explicit", file="x.prmtop").soft_words == wet
    assert RunSettings(soft="all", preset="torsions", solvent="tip3p").soft_words == "all"


def test_whether_u_f_is_part_of_the_energy():
    for ensemble in ("langevin", "ghmc", "nve"):
        found = [RunSettings(ensemble=ensemble, fixman=fixman).uses_fixman for fixman in (None, True, False)]
        assert found == [ensemble != "nve", True, False]


def test_the_distribution_in_words():
    off = "the Fixman potential is off, so the bias of the kinetic metric is in it"
    for given, bias in (
        ({}, False), ({"fixman": False}, True), ({"fixman": False, "preset": "flexible"}, True),
        ({"fixman": False, "preset": "flexible", "metric": "physical"}, False),
        ({"fixman": False, "preset": "heavy", "metric": "physical"}, True),
        ({"ensemble": "nve"}, True), ({"ensemble": "nve", "preset": "flexible"}, False),
    ):  # fmt: skip
        text = RunSettings(**given).distribution
        assert (off in text) == bias and ("at constant energy" in text) == ("ensemble" in given)
        assert "waters are rigid" not in text
    assert "waters are rigid" in RunSettings(solvent="tip3p", padding=1.0).distribution
    words = RunSettings(soft="phi", solvent="tip3p").distribution
    assert words == "soft coordinates (phi) as in the force field, the rest fixed at the reference geometry"
    error = "with the time-step error of Langevin dynamics"
    for given in ({"exact": True}, {"ensemble": "langevin"}, {"preset": "heavy"}):
        text = ExchangeSettings(**given).distribution
        assert (error in text) == ("ensemble" in given)
        assert text.startswith(
            PRESETS["flexible" if "exact" in given else given.get("preset", "torsions")].distribution
        )


def test_forces_in_words():
    assert RunSettings().forces == "obc2, amber14"
    assert RunSettings(cutoff=1.25, forcefield="amber19", solvent="gbn2").forces == "gbn2, cutoff 1.25 nm, amber19"
    assert RunSettings(file="a/x.prmtop", solvent="vacuum").forces == "vacuum, parameters of x.prmtop"


@pytest.mark.parametrize(
    ("file", "name"),
    [(None, "ala10"), ("a/b.c/x.pdb", "x"), ("x.pdb.gz", "x"), ("x.cif.bz2", "x"), ("x.y.pdb", "x.y"), ("x", "x")],
)
def test_runs_are_named_after_their_file(file, name):
    assert RunSettings(file=file).name == name


# ---------------------------------------------------------------------------- sources


@pytest.mark.parametrize("seed", [0, 7])
def test_what_is_filled_in(tmp_path, monkeypatch, seed):
    """A seed and a length if there are none, and where files with parameters are."""
    monkeypatch.chdir(tmp_path)
    given = {"file": "x.prmtop", "coordinates": "y.rst7", "parameters": ["a.par", "/b.par"], "include": "z"}
    found = resolve_settings({**given, "solvent": "vacuum", "seed": seed})
    assert found.file == os.path.abspath("x.prmtop") and found.coordinates == os.path.abspath("y.rst7")
    assert found.include == os.path.abspath("z") and found.parameters == (os.path.abspath("a.par"), "/b.par")
    assert found.seed == seed and found.time == "100ps" and found.steps is None
    lone = resolve_settings({"file": "x.prmtop", "solvent": "vacuum"})
    assert (lone.coordinates, lone.include, lone.parameters) == (None, None, ())
    assert resolve_settings({"file": "x.pdb", "steps": 5}).file == "x.pdb"
    assert resolve_settings({"steps": 5}).time is None and resolve_settings({"time": "3ps"}).time == "3ps"
    drawn = {resolve_settings({}).seed for _ in range(4)}
    assert len(drawn) == 4 and all(0 <= number < 2**31 for number in drawn)
    assert resolve_settings({"seed": seed}, base=ExchangeSettings()) == ExchangeSettings(seed=seed)


def test_later_sources_win(tmp_path):
    """What is given, then the file, then the base; time replaces steps and words the preset, each way round."""
    config = tmp_path / "x.toml"
    config.write_text('temperature = 310\nfriction = 2.0\nhydrogen-mass = 3\nsteps = 5\nsoft = "phi"\n')
    base = RunSettings(temperature=320.0, friction=3.0, cutoff=2.0, time="1ps", preset="heavy", seed=1)
    found = resolve_settings({"temperature": 305.0}, config, base)
    assert (found.temperature, found.friction, found.cutoff, found.hydrogen_mass) == (305.0, 2.0, 2.0, 3.0)
    assert (found.time, found.steps, found.soft, found.preset, found.seed) == (None, 5, "phi", "torsions", 1)
    back = resolve_settings({"time": "2ps", "preset": "angles"}, config, base)
    assert (back.time, back.steps, back.soft, back.preset) == ("2ps", None, None, "angles")
    same = resolve_settings({}, None, found)
    assert same == found
    for text in ('soft = "phi"\npreset = "heavy"', 'time = "1ps"\nsteps = 1'):
        config.write_text(text)
        with pytest.raises(ArgumentError, match=r"x\.toml has both .* and .*; give one of them"):
            resolve_settings({}, config)


@pytest.mark.parametrize(
    ("given", "phrase"),
    [
        ({"temprature": 300}, "the call has a setting 'temprature' that does not exist; did you mean temperature"),
        ({"zzzzzz": 300}, "that does not exist; known are file, coordinates"),
        ({"temperature": "hot"}, "temperature in the call is 'hot', expected a number"),
        ({"temperature": True}, "temperature in the call is True, expected a number"),
        ({"temperature": 10**400}, "temperature in the call is a whole number of 1329 bits, which is too large"),
        ({"steps": 1.0}, "steps in the call is 1.0, expected a whole number"),
        ({"steps": True}, "steps in the call is True, expected a whole number"),
        ({"relax": 1}, "relax in the call is 1, expected true or false"),
        ({"file": 3}, "file in the call is 3, expected text"),
        ({"report": True}, "report in the call is True, expected text"),
        ({"time": 5}, "time in the call is 5, expected text"),
        ({"rigid": "all"}, "rigid in the call is 'all', expected a list of texts"),
        ({"rigid": ["all", 3]}, "rigid in the call is .*, expected a list of texts"),
        ({"file": "a\0b"}, "file in the call is .*, which has a NUL byte in it"),
        ({"rigid": ["a", "b\0"]}, "rigid in the call is .*, which has a NUL byte in it"),
        ({"file": "\udcff"}, "file in the call is .*, which is not text in UTF-8"),
        ({"rigid": ("\udcff",)}, "rigid in the call is .*, which is not text in UTF-8"),
    ],
)
def test_values_of_the_wrong_kind(given, phrase):
    with pytest.raises(ArgumentError, match=phrase):
        resolve_settings(given)


def test_values_of_the_right_kind():
    found = resolve_settings(
        {"report": 25, "temperature": 310, "rigid": ["a", "b"], "relax": False, "hydrogen-mass": 2}
    )
    assert (found.report, found.temperature, found.rigid, found.relax) == ("25", 310.0, ("a", "b"), False)
    assert type(found.temperature) is type(found.hydrogen_mass) is float and found.report_steps == 25


@pytest.mark.parametrize("kind", BOTH)
def test_settings_are_written_and_read_again(tmp_path, kind):
    """What is not set is left out, and the preset where words are given."""
    whole = kind(file="x.pdb", seed=3, rigid=("a", "b"), relax=False, cutoff=1.5)
    words = kind(seed=3, soft="phi psi")
    for settings in (whole, words):
        (tmp_path / "x.toml").write_text(settings.to_toml())
        table = read_toml(tmp_path / "x.toml")
        assert ("preset" in table) == (settings.soft is None) != ("soft" in table)
        assert "threads" not in table and table["rigid"] == list(settings.rigid)
        assert resolve_settings(table, base=kind()) == settings.filled_in()
    assert len(read_toml(tmp_path / "x.toml")) < len(fields(kind))


def test_files_that_are_no_toml_files(tmp_path):
    with pytest.raises(ArgumentError, match=r"cannot read .*none\.toml: No such file"):
        read_toml(tmp_path / "none.toml")
    for name, data in (("a", b"steps 5"), ("b", b"\xff\xfe"), ("c", b"x = " + b"[" * 10_000)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ArgumentError, match="is not a TOML file"):
            read_toml(tmp_path / name)


def test_what_may_change_when_a_run_goes_on():
    assert RunSettings.changeable == {"time", "steps", "platform", "threads"}
    assert ExchangeSettings.changeable == {"iterations", "platform", "threads"}
    assert (RunSettings.stored_as, ExchangeSettings.stored_as) == ("run.toml", "exchange.toml")
