"""Settings of `peptidyn run`: defaults, run.toml and the command line, resolved into one flat table."""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from peptidyn.core.errors import ArgumentError
from peptidyn.engine.systems import CUTOFF, SOLVENTS, WATER_MODELS
from peptidyn.model.chemistry import BENDS, parse_soft

PRESETS = {"torsions": "phi psi chi", "angles": "phi psi chi omega angles"}
"""Soft coordinates by name: the default model, and the one recommended for populations."""

DEFAULT_TIME = "100ps"

TRAJECTORIES = ("dcd", "xtc")

ENSEMBLES = ("langevin", "nve", "ghmc")

_PICOSECONDS = {"fs": 1e-3, "ps": 1.0, "ns": 1e3, "us": 1e6}


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides what a run does. Times are text with a unit: ``250fs``, ``10ps``, ``1.5ns``.

    Attributes
    ----------
    file : str or None
        Structure to simulate; None builds capped decaalanine.
    select : str or None
        MDTraj selection of the atoms to simulate.
    pH : float
        For hydrogens that are added.
    time, steps : str or None, int or None
        Length of the run; one of them.
    timestep : float or None
        fs; None means 8, or 4 when bond angles or the rotors of OH, SH and NH are soft, or in explicit water.
    temperature : float
        K.
    friction : float
        1/ps.
    ensemble : {"langevin", "nve", "ghmc"}
    fixman : bool or None
        Whether U_F is part of the energy; None means yes, except for nve.
    preset, soft : str, str or None
        Soft coordinates, by preset or as words.
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
    cutoff : float
        Explicit solvent: of the direct-space part of PME, nm.
    keep_rigid_terms : bool
        Compute angle and torsion terms inside rigid units, although they are constant.
    platform, threads : str or None, int or None
    seed : int or None
    relax : bool
        Relax bonds and angles in Cartesian coordinates first.
    equilibrate : str
        Time of equilibration.
    report : str
        Time between frames, or a number of steps.
    trajectory : {"dcd", "xtc"}
    """

    file: str | None = None
    select: str | None = None
    pH: float = 7.0
    time: str | None = None
    steps: int | None = None
    timestep: float | None = None
    temperature: float = 300.0
    friction: float = 1.0
    ensemble: str = "langevin"
    fixman: bool | None = None
    preset: str = "torsions"
    soft: str | None = None
    rigid: tuple[str, ...] = ()
    hydrogen_mass: float | None = None
    solvent: str = "obc2"
    forcefield: str = "amber14"
    padding: float | None = None
    ions: float = 0.0
    cutoff: float = CUTOFF
    keep_rigid_terms: bool = False
    platform: str | None = None
    threads: int | None = None
    seed: int | None = None
    relax: bool = True
    equilibrate: str = "2ps"
    report: str = "1ps"
    trajectory: str = "dcd"

    def __post_init__(self) -> None:
        for name in ("timestep", "temperature", "cutoff", "padding", "hydrogen_mass"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ArgumentError(f"{name} is {value:g}, expected a positive number")
        for name in ("friction", "ions"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ArgumentError(f"{name} is {value:g}, expected a number that is not negative")
        _check_choice("ensemble", self.ensemble, ENSEMBLES)
        _check_choice("preset", self.preset, tuple(PRESETS))
        _check_choice("solvent", self.solvent, SOLVENTS)
        _check_choice("trajectory", self.trajectory, TRAJECTORIES)
        if self.solvent not in WATER_MODELS and (self.padding is not None or self.ions):
            raise ArgumentError(
                f"padding and ions belong to a box of water and the solvent is {self.solvent}; give one of "
                f"{', '.join(WATER_MODELS)}"
            )
        if self.time is not None and self.steps is not None:
            raise ArgumentError("give the length of the run as time or as steps, not both")
        for name in ("steps", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ArgumentError(f"{name} is {value}, expected 1 or more")
        for count in (self.n_steps, self.report_steps, self.equilibration_steps):
            assert count >= 0

    @property
    def n_steps(self) -> int:
        """Length of the run in steps."""
        if self.steps is not None:
            return self.steps
        return max(1, self._steps("time", self.time if self.time is not None else DEFAULT_TIME))

    @property
    def report_steps(self) -> int:
        """Steps between reports, at least 1."""
        if self.report.strip().isdigit():
            return max(1, int(self.report))
        return max(1, self._steps("report", self.report))

    @property
    def equilibration_steps(self) -> int:
        """Steps of equilibration."""
        return self._steps("equilibrate", self.equilibrate)

    @property
    def soft_words(self) -> str:
        """What is soft."""
        return self.soft if self.soft is not None else PRESETS[self.preset]

    @property
    def uses_fixman(self) -> bool:
        """Whether U_F is part of the energy."""
        return self.ensemble != "nve" if self.fixman is None else self.fixman

    @property
    def timestep_ps(self) -> float:
        """The time step in ps, given or by default."""
        if self.timestep is not None:
            return 1e-3 * self.timestep
        quick = parse_soft(self.soft_words) & {*BENDS, "polar"}
        return 0.004 if quick or self.solvent in WATER_MODELS else 0.008

    def _steps(self, name: str, text: str) -> int:
        return round(parse_time(name, text) / self.timestep_ps)

    def to_toml(self) -> str:
        """Return the settings as a TOML table; what is not set is left out."""
        lines = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (field.name == "preset" and self.soft is not None):
                value = list(value) if isinstance(value, tuple) else value
                lines.append(f"{field.name} = {json.dumps(value, ensure_ascii=False)}")
        return "\n".join(lines) + "\n"


def resolve_settings(
    given: Mapping[str, Any], config: str | os.PathLike[str] | None = None, base: RunSettings | None = None
) -> RunSettings:
    """Return settings from defaults (or `base`), then the file `config`, then what was `given`; later ones win.

    Within one source, time excludes steps and soft excludes preset; across sources the later one replaces both. The
    time step and the length are filled in, and a seed is drawn if there is none, so that every run can be repeated.
    """
    settings = RunSettings() if base is None else base
    if config is not None:
        settings = _changed(settings, read_toml(config), str(config))
    settings = _changed(settings, given, "the command line")
    seed = secrets.randbelow(2**31) if settings.seed is None else settings.seed
    timestep = 1e3 * settings.timestep_ps if settings.timestep is None else settings.timestep
    time = DEFAULT_TIME if settings.time is None and settings.steps is None else settings.time
    return replace(settings, seed=seed, timestep=timestep, time=time)


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the table in a TOML file; ArgumentError if it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} is not a TOML file: {error}") from error


def _changed(settings: RunSettings, values: Mapping[str, Any], source: str) -> RunSettings:
    new = {name.replace("-", "_"): value for name, value in values.items()}
    types = {field.name: str(field.type) for field in fields(RunSettings)}
    for name, value in new.items():
        if name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(types)}"
            raise ArgumentError(f"{source} has a setting {name!r} that does not exist; {hint}")
        new[name] = _typed(name, types[name], value, source)
    for one, other, instead in (("time", "steps", None), ("soft", "preset", RunSettings.preset)):
        if one in new and other in new:
            raise ArgumentError(f"{source} has both {one} and {other}; give one of them")
        if one in new:
            new[other] = instead
        elif other in new:
            new[one] = None
    return replace(settings, **new)


def _typed(name: str, kind: str, value: Any, source: str) -> Any:
    """Return `value` as the type of the field, or raise ArgumentError."""
    kind = kind.removesuffix(" | None")
    if kind.startswith("tuple") and isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if kind == "str" and name in ("report",) and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if kind == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind == {str: "str", bool: "bool", int: "int"}.get(type(value)):
        return value
    expected = {"str": "text", "bool": "true or false", "int": "a whole number", "float": "a number"}
    raise ArgumentError(f"{name} in {source} is {value!r}, expected {expected.get(kind, 'a list of texts')}")


def parse_time(name: str, text: str) -> float:
    """Return a time like ``10ps`` in ps."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(fs|ps|ns|us)\s*", text)
    if match is None:
        raise ArgumentError(f"{name} is {text!r}, expected a time with its unit, e.g. 500fs, 100ps or 1.5ns")
    return float(match[1]) * _PICOSECONDS[match[2]]


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{name} is {value!r}, expected one of {', '.join(choices)}")
