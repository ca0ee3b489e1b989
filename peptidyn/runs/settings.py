"""Settings of runs and of replica exchange: defaults, a TOML file and what is given, resolved into one flat table."""

from __future__ import annotations

import difflib
import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import tomli_w

from peptidyn.core.errors import ArgumentError
from peptidyn.engine.systems import EXPLICIT, IMPLICIT, SOLVENTS, WATER_MODELS
from peptidyn.io.parameter_files import is_parameter_file
from peptidyn.runs.presets import PRESETS, Preset, preset_for_step
from peptidyn.sampling.exchange import geometric_temperatures

DEFAULT_TIME = "100ps"

TRAJECTORIES = ("dcd", "xtc")

ENSEMBLES = ("langevin", "nve", "ghmc")

METRICS = ("physical", "auto")

WATER_STEP = 4.0
"""Largest default time step in explicit water, fs."""

MOST_STEPS = 10**12
"""Of a run, of an equilibration or between reports: years of computing."""

MOST = {
    "timestep": 1e3, "cutoff": 100.0, "padding": 100.0, "hydrogen_mass": 1e3, "friction": 1e6, "ions": 10.0,
    "temperature": 1e5, "tmin": 1e5, "tmax": 1e5, "threads": 4096, "seed": 2**63 - 1, "steps": MOST_STEPS,
    "model": 10**9, "pressure": 1e6,
    "replicas": 10_000, "iterations": MOST_STEPS, "interval": MOST_STEPS, "warm_up": MOST_STEPS,
    "pivots": MOST_STEPS,
}  # fmt: skip
"""Largest values of settings; what is beyond is a slip, and would fill memory or never end."""

_PICOSECONDS = {"fs": 1e-3, "ps": 1.0, "ns": 1e3, "us": 1e6}


def parse_time(name: str, text: str) -> float:
    """Return a time like ``10ps`` in ps."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(fs|ps|ns|us)\s*", text)
    if match is None:
        raise ArgumentError(f"{name} is {_shown(text)}, expected a time with its unit, e.g. 500fs, 100ps or 1.5ns")
    return float(match[1]) * _PICOSECONDS[match[2]]


@dataclass(frozen=True)
class ModelSettings:
    """What is simulated, with which forces, steps and random numbers: the settings that all runs share.

    Attributes
    ----------
    file : str or None
        Structure to simulate; None builds capped decaalanine. A prmtop, psf or top file brings its own force field.
    coordinates, parameters, include : str or None, tuple of str, str or None
        Of a prmtop, psf or top file, as for `peptidyn.engine.inputs.load_system`.
    model : int
        Which model of the file, counted from 0.
    start, frame : str or None, int or None
        Folder of a run to start from, or a trajectory of the atoms in the file; which of its frames, counted from 0, or
        from the end if negative. None means the last; that of a run has all its digits.
    select : str or None
        MDTraj selection of the atoms to simulate.
    pH : float
        For hydrogens that are added.
    timestep : float or None
        fs; None means that of the preset, or of the preset nearest to the words of `soft`, at most 4 in explicit water,
        and less where joint inertias would stop long loops (`peptidyn.runs.model.make_model`).
    friction : float
        1/ps.
    preset, soft : str, str or None
        Soft coordinates, by preset (see `peptidyn.runs.presets`) or as words.
    metric : {"physical", "auto"} or None
        Joint inertias: none, or those that the time step needs; None means those of the preset, and none for `soft`.
    rigid : tuple of str
        MDTraj selections, each frozen into one body.
    hydrogen_mass : float or None
        Da; None keeps the masses.
    solvent, forcefield : str
    padding : float or None
        Explicit solvent: water around the molecule, nm. None means the box of the file if that is full of water, and
        1 nm otherwise.
    ions : float
        Explicit solvent: salt beside the ions that neutralise the box, mol/l.
    cutoff : float or None
        Of the direct-space part of PME in explicit solvent, 1 nm if None; of all nonbonded forces in implicit solvent
        and vacuum, where None means no cutoff. nm.
    platform, threads : str or None, int or None
    seed : int or None
    relax : bool
        Relax bonds and angles in Cartesian coordinates first.
    """

    stored_as: ClassVar[str]
    """Name of the file in the folder of a run that holds its settings."""

    changeable: ClassVar[frozenset[str]]
    """Settings that may change when a run is resumed."""

    either: ClassVar[tuple[tuple[str, str], ...]] = (("soft", "preset"),)
    """Pairs of settings of which one is given."""

    file: str | None = None
    coordinates: str | None = None
    parameters: tuple[str, ...] = ()
    include: str | None = None
    model: int = 0
    start: str | None = None
    frame: int | None = None
    select: str | None = None
    pH: float = 7.0
    timestep: float | None = None
    friction: float = 1.0
    preset: str = "torsions"
    soft: str | None = None
    metric: str | None = None
    rigid: tuple[str, ...] = ()
    hydrogen_mass: float | None = None
    solvent: str = "obc2"
    forcefield: str = "amber14"
    padding: float | None = None
    ions: float = 0.0
    cutoff: float | None = None
    platform: str | None = None
    threads: int | None = None
    seed: int | None = None
    relax: bool = True

    def __post_init__(self) -> None:
        self._check_positive("timestep", "cutoff", "padding", "hydrogen_mass")
        for name in ("friction", "ions"):
            value = getattr(self, name)
            if not 0 <= value <= MOST[name]:
                raise ArgumentError(f"{name} is {value:g}, expected a number from 0 to {MOST[name]:g}")
        if not 0 <= self.pH <= 14:
            raise ArgumentError(f"pH is {self.pH:g}, expected a number from 0 to 14")
        self._check_least("seed", 0)
        self._check_choice("preset", tuple(PRESETS))
        self._check_input()
        if self.metric is not None:
            self._check_choice("metric", METRICS)
        self._check_least("threads", 1)
        self._check_least("model", 0)
        if self.frame is not None and self.start is None:
            raise ArgumentError("a frame belongs to a run or a trajectory; give start=, too")
        if self.solvent not in WATER_MODELS and (self.padding is not None or self.ions):
            raise ArgumentError(
                f"padding and ions belong to a box of water and the solvent is {self.solvent}; give one of "
                f"{', '.join(WATER_MODELS)}"
            )

    def _check_input(self) -> None:
        """Raise ArgumentError if the solvent and other settings do not fit the kind of file."""
        if not self.brings_parameters:
            self._check_choice("solvent", SOLVENTS)
            if self.coordinates is not None or self.parameters or self.include is not None:
                raise ArgumentError("coordinates=, parameters= and include= belong to prmtop, psf and top files")
            return
        self._check_choice("solvent", (EXPLICIT, "vacuum", *IMPLICIT))
        if self.select is not None or self.forcefield != ModelSettings.forcefield:
            raise ArgumentError(
                f"{self.file} brings its own parameters for all its atoms; leave select and forcefield out"
            )

    @property
    def brings_parameters(self) -> bool:
        """Whether the file holds its force field: prmtop, psf or top."""
        return is_parameter_file(self.file)

    @property
    def in_water(self) -> bool:
        """Whether the solvent is explicit."""
        return self.solvent in (*WATER_MODELS, EXPLICIT)

    @property
    def forces_of(self) -> str:
        """Where the forces come from: the force field, or the file."""
        return f"parameters of {Path(self.file).name}" if self.brings_parameters and self.file else self.forcefield

    def _check_positive(self, *names: str) -> None:
        for name, value in ((name, getattr(self, name)) for name in names):
            if value is not None and not 0 < value <= MOST[name]:
                raise ArgumentError(f"{name} is {value:g}, expected a positive number of at most {MOST[name]:g}")

    def _check_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is not None and not least <= value <= MOST[name]:
            bounds = f"{least} or more" if value < least else f"at most {MOST[name]}"
            raise ArgumentError(f"{name} is {_shown(value)}, expected {bounds}")

    def _check_pivots(self, pivots: int) -> None:
        self._check_least("pivots", 0)
        if pivots and self.in_water:
            raise ArgumentError(
                f"pivot moves turn the chain through the waters of {self.solvent} and would all be rejected; use "
                "implicit solvent, or leave pivots out"
            )

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in choices:
            raise ArgumentError(f"{name} is {_shown(value)}, expected one of {', '.join(choices)}")

    @property
    def name(self) -> str:
        """What a run is called: its structure file without folder and endings."""
        return (
            "ala10" if self.file is None else Path(Path(self.file).name.removesuffix(".gz").removesuffix(".bz2")).stem
        )

    @property
    def soft_words(self) -> str:
        """What is soft. Waters of a box stay rigid in the presets."""
        if self.soft is not None:
            return self.soft
        soft = PRESETS[self.preset].soft
        return f"{soft} in not water" if self.in_water and soft in ("heavy", "all") else soft

    @property
    def dynamics(self) -> str:
        """Which default time steps hold: those of the ensemble, which runs of every kind have."""
        return self.ensemble  # type: ignore[attr-defined]

    @property
    def hottest(self) -> float:
        """The temperature that default time steps of Langevin dynamics follow, K."""
        return 300.0

    @property
    def metric_word(self) -> str:
        """The kinetic metric, given or by default: ``physical`` or ``auto``."""
        if self.metric is not None:
            return self.metric
        return "physical" if self.soft is not None or self.dynamics == "nve" else PRESETS[self.preset].metric

    @property
    def timestep_ps(self) -> float:
        """The time step in ps, given or the default of the preset."""
        if self.timestep is not None:
            return 1e-3 * self.timestep
        preset: Preset = PRESETS[self.preset] if self.soft is None else preset_for_step(self.soft)
        step = preset.langevin if self.dynamics == "langevin" else preset.ghmc
        if self.metric_word == "physical":
            step = preset.physical
        elif self.dynamics == "langevin":
            step = round(step * min(1.0, (300.0 / self.hottest) ** 0.5), 1)  # atoms move as far per step as at 300 K
        return 1e-3 * (min(step, WATER_STEP) if self.in_water else step)

    @property
    def forces(self) -> str:
        """Solvent, cutoff if one was given, and force field, in words."""
        cutoff = "" if self.cutoff is None else f"cutoff {self.cutoff:g} nm, "
        return f"{self.solvent}, {cutoff}{self.forces_of}"

    @property
    def distribution(self) -> str:
        """Which distribution is sampled, in words."""
        if self.soft is not None:
            text = f"soft coordinates ({self.soft}) as in the force field, the rest fixed at the reference geometry"
        else:
            text = PRESETS[self.preset].distribution
            text += "; waters are rigid" if self.in_water else ""
        return text

    def filled_in(self) -> Self:
        """Return the settings with a seed drawn, so that every run can be repeated."""
        seed = secrets.randbelow(2**31) if self.seed is None else self.seed
        return replace(self, seed=seed, **self._absolute_paths())

    def _absolute_paths(self) -> dict[str, Any]:
        """Return where the files with parameters are, which a resumed run reads again, from whatever folder."""
        if not self.brings_parameters:
            return {}
        paths = {
            name: value for name in ("file", "coordinates", "include") if (value := getattr(self, name)) is not None
        }
        found: dict[str, Any] = {name: os.path.abspath(path) for name, path in paths.items()}
        return {**found, "parameters": tuple(os.path.abspath(path) for path in self.parameters)}

    def to_toml(self) -> str:
        """Return the settings as a TOML table; what is not set is left out."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        if self.soft is not None:
            del values["preset"]
        return tomli_w.dumps(values)


S = TypeVar("S", bound=ModelSettings)


@dataclass(frozen=True)
class RunSettings(ModelSettings):
    """Everything that decides what a run does. Times are text with a unit: ``250fs``, ``10ps``, ``1.5ns``.

    Attributes
    ----------
    time, steps : str or None, int or None
        Length of the run; one of them.
    temperature : float
        K.
    pressure : float or None
        bar, in explicit water; None means constant volume.
    ensemble : {"langevin", "nve", "ghmc"}
    pivots : int
        Pivot moves per 100 time steps, about: turns of the chain behind one backbone bond by any angle, accepted by
        their energy. Small peptides change basins by them far more often than by dynamics; needs implicit solvent or
        vacuum, a heat bath and U_F.
    fixman : bool or None
        Whether U_F is part of the energy; None means yes, except for nve.
    keep_rigid_terms : bool
        Compute angle and torsion terms inside rigid units, although they are constant.
    equilibrate : str
        Time of equilibration.
    report : str
        Time between frames, or a number of steps.
    trajectory : {"dcd", "xtc"}
    """

    stored_as = "run.toml"
    changeable = frozenset({"time", "steps", "platform", "threads"})
    either = (("time", "steps"), ("soft", "preset"))

    time: str | None = None
    steps: int | None = None
    temperature: float = 300.0
    pressure: float | None = None
    ensemble: str = "langevin"
    pivots: int = 0
    fixman: bool | None = None
    keep_rigid_terms: bool = False
    equilibrate: str = "2ps"
    report: str = "1ps"
    trajectory: str = "dcd"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("temperature", "pressure")
        self._check_choice("ensemble", ENSEMBLES)
        if self.pressure is not None and (not self.in_water or self.ensemble == "nve"):
            raise ArgumentError(
                f"pressure= needs explicit water and a heat bath, and this run has the solvent {self.solvent} and the "
                f"ensemble {self.ensemble}; leave it out, or choose another solvent= or ensemble="
            )
        self._check_pivots(self.pivots)
        if self.pivots and not (self.uses_fixman and self.ensemble != "nve"):
            raise ArgumentError(
                "pivot moves need a heat bath and the Fixman potential, without which dynamics samples another "
                "distribution; take the ensemble langevin or ghmc with it, or leave pivots out"
            )
        self._check_choice("trajectory", TRAJECTORIES)
        self._check_least("steps", 1)
        if self.time is not None and self.steps is not None:
            raise ArgumentError("give the length of the run as time or as steps, not both")
        for name in ("n_steps", "report_steps", "equilibration_steps"):
            getattr(self, name)  # raises for a time that is none, or too long

    @property
    def n_steps(self) -> int:
        """Length of the run in steps."""
        if self.steps is not None:
            return self.steps
        text = self.time if self.time is not None else DEFAULT_TIME
        steps = self._steps("time", text)
        if not steps:
            raise ArgumentError(
                f"time is {_shown(text)}, less than half a step of {1e3 * self.timestep_ps:g} fs; give a longer one"
            )
        return steps

    @property
    def report_steps(self) -> int:
        """Steps between reports, at least 1."""
        if re.fullmatch(r"\s*[0-9]+\s*", self.report):
            if len(self.report) > len(str(MOST_STEPS)):
                raise ArgumentError(f"report is {_shown(self.report)}, expected at most {MOST_STEPS} steps")
            return max(1, int(self.report))
        return max(1, self._steps("report", self.report))

    @property
    def equilibration_steps(self) -> int:
        """Steps of equilibration."""
        return self._steps("equilibrate", self.equilibrate)

    @property
    def uses_fixman(self) -> bool:
        """Whether U_F is part of the energy."""
        return self.ensemble != "nve" if self.fixman is None else self.fixman

    @property
    def hottest(self) -> float:
        """The temperature, K."""
        return self.temperature

    @property
    def distribution(self) -> str:
        """Which distribution is sampled, in words."""
        text = super().distribution
        if not self.uses_fixman and (self.soft_words, self.metric_word) != ("all", "physical"):
            text += "; the Fixman potential is off, so the bias of the kinetic metric is in it"
        return f"{text}; at constant energy" if self.ensemble == "nve" else text

    def _steps(self, name: str, text: str) -> int:
        steps = parse_time(name, text) / self.timestep_ps
        if not steps <= MOST_STEPS:
            raise ArgumentError(f"{name} is {_shown(text)}: {steps:.1e} steps, expected at most {MOST_STEPS:.0e}")
        return round(steps)

    def filled_in(self) -> Self:
        """Return the settings with seed and length filled in."""
        time = DEFAULT_TIME if self.time is None and self.steps is None else self.time
        return replace(super().filled_in(), time=time)


@dataclass(frozen=True)
class ExchangeSettings(ModelSettings):
    """Everything that decides what replica exchange does.

    Attributes
    ----------
    replicas : int
    tmin, tmax : float
        Lowest and highest temperature, K; the others lie between them with a constant ratio.
    iterations : int
        Stretches of every replica, each followed by exchanges.
    interval : int
        Time steps of a stretch, about: trajectories have 10 on average, and 50 in Langevin dynamics.
    ensemble : {"ghmc", "langevin"}
        How replicas move between exchanges: by torsional HMC, which is exact, or by Langevin dynamics, which explores
        faster and has a time-step error. The time step of the second is made shorter by sqrt(300 K / T) above 300 K.
    exact : bool
        Mix Cartesian moves in, so that the flexible force field is sampled and not the rigid model.
    pivots : int
        Pivot moves in a stretch, about: turns of the chain behind one backbone bond by any angle, accepted by their
        energy. Small peptides change basins by them far more often than by dynamics; needs implicit solvent or vacuum.
    warm_up : int
        Trajectories in which time steps are tuned before the run; 0 keeps the one given.
    """

    stored_as = "exchange.toml"
    changeable = frozenset({"iterations", "platform", "threads"})

    replicas: int = 8
    tmin: float = 280.0
    tmax: float = 500.0
    iterations: int = 200
    interval: int = 100
    ensemble: str = "ghmc"
    exact: bool = False
    pivots: int = 0
    warm_up: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_least("replicas", 2)
        self._check_positive("tmin", "tmax")
        geometric_temperatures(self.tmin, self.tmax, self.replicas)
        for name, least in (("iterations", 1), ("interval", 1), ("warm_up", 0)):
            self._check_least(name, least)
        self._check_choice("ensemble", ("ghmc", "langevin"))
        self._check_pivots(self.pivots)
        if self.exact and self.ensemble == "langevin":
            raise ArgumentError("exact sampling needs Metropolised moves; leave exact out, or take ensemble 'ghmc'")
        if self.exact and self.in_water:
            raise ArgumentError(
                f"exact sampling moves every atom and the waters of {self.solvent} are rigid; use implicit solvent, or "
                "leave exact out"
            )

    @property
    def distribution(self) -> str:
        """Which distribution is sampled, in words."""
        text = PRESETS["flexible"].distribution if self.exact else super().distribution
        return f"{text}; with the time-step error of Langevin dynamics" if self.ensemble == "langevin" else text


def _shown(value: Any) -> str:
    """Return a value for a message; long ones are cut, and numbers that Python does not print are described."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a whole number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}... ({len(text)} characters)"


_DEFAULTS = RunSettings()


def resolve_settings(
    given: Mapping[str, Any],
    config: str | os.PathLike[str] | None = None,
    base: S = _DEFAULTS,  # type: ignore[assignment]
) -> S:
    """Return settings from `base`, then the file `config`, then what was `given`; later ones win.

    Within one source, time excludes steps and soft excludes preset; across sources the later one replaces both. The
    length is filled in, and a seed is drawn if there is none, so that every run can be repeated. A time step that was
    not given depends on the molecule, and `peptidyn.runs.model.make_model` fills it in.
    """
    if config is not None:
        base = _changed(base, read_toml(config), str(config))
    return _changed(base, given, "the call").filled_in()


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the table in a TOML file; ArgumentError if it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, or of a name that no file can have
        raise ArgumentError(f"{_shown(str(path))} is not a TOML file: {error}") from error


def _changed(settings: S, values: Mapping[str, Any], source: str) -> S:
    new = {name.replace("-", "_"): value for name, value in values.items()}
    types = {field.name: str(field.type) for field in fields(settings)}
    defaults = {field.name: field.default for field in fields(settings)}
    for name, value in new.items():
        if name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(types)}"
            raise ArgumentError(f"{source} has a setting {_shown(name)} that does not exist; {hint}")
        new[name] = _typed(name, types[name], value, source)
    for one, other in settings.either:
        if one in new and other in new:
            raise ArgumentError(f"{source} has both {one} and {other}; give one of them")
        for this, that in ((one, other), (other, one)):
            if this in new:
                new.setdefault(that, defaults[that])
    return replace(settings, **new)


def _typed(name: str, kind: str, value: Any, source: str) -> Any:
    """Return `value` as the type of the field, or raise ArgumentError."""
    kind = kind.removesuffix(" | None")
    for text in value if isinstance(value, list | tuple) else (value,):
        if isinstance(text, str):
            _check_text(name, text, source)
    if kind.startswith("tuple") and isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if kind == "str" and name in ("report",) and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if kind == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ArgumentError(f"{name} in {source} is {_shown(value)}, which is too large") from error
    if kind == {str: "str", bool: "bool", int: "int"}.get(type(value)):
        return value
    expected = {"str": "text", "bool": "true or false", "int": "a whole number", "float": "a number"}
    raise ArgumentError(f"{name} in {source} is {_shown(value)}, expected {expected.get(kind, 'a list of texts')}")


def _check_text(name: str, text: str, source: str) -> None:
    """Raise ArgumentError for text that neither file names nor TOML files can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name} in {source} is {_shown(text)}, which is not text in UTF-8") from error
    if "\0" in text:
        raise ArgumentError(f"{name} in {source} is {_shown(text)}, which has a NUL byte in it")
