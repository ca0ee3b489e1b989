"""What `peptidyn exchange` does: prepare a structure, tune steps, run replica exchange, and leave a folder of files.

Beside the files of `peptidyn.sampling.storage` the folder holds ``exchange.toml``, all settings as resolved, and
``summary.json``, acceptances and round trips.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from peptidyn._version import __version__
from peptidyn.core.errors import ArgumentError
from peptidyn.core.files import write_text
from peptidyn.engine.systems import WATER_MODELS
from peptidyn.io.readers import load_structure
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.run import StopRequest, find_reference_geometry, make_model, run_name, written_and_read
from peptidyn.runs.settings import RunSettings, read_toml, resolve_settings
from peptidyn.sampling.exchange import ReplicaExchange, geometric_temperatures
from peptidyn.sampling.moves import CartesianHMC, Move, TorsionalHMC
from peptidyn.sampling.storage import CHECKPOINT, TOPOLOGY

SETTINGS, SUMMARY = "exchange.toml", "summary.json"

SHARED = (
    "file", "select", "pH", "timestep", "friction", "preset", "soft", "rigid", "hydrogen_mass", "solvent", "forcefield",
    "platform", "threads", "seed", "relax",
)  # fmt: skip
"""Settings that mean the same as in `peptidyn run`."""

TRAJECTORY_STEPS = 10
"""Time steps of one torsional HMC trajectory."""


@dataclass(frozen=True)
class ExchangeSettings:
    """What replica exchange has beside the settings that it shares with a run.

    Attributes
    ----------
    replicas : int
    tmin, tmax : float
        Lowest and highest temperature, K; the others lie between them with a constant ratio.
    iterations : int
        Stretches of every replica, each followed by exchanges.
    interval : int
        Time steps of a stretch, about: trajectories have 10 on average.
    exact : bool
        Mix Cartesian moves in, so that the flexible force field is sampled and not the rigid model.
    warm_up : int
        Trajectories in which time steps are tuned before the run; 0 keeps the one given.
    """

    replicas: int = 8
    tmin: float = 280.0
    tmax: float = 500.0
    iterations: int = 200
    interval: int = 100
    exact: bool = False
    warm_up: int = 40

    def __post_init__(self) -> None:
        geometric_temperatures(self.tmin, self.tmax, self.replicas)
        for name, least in (("iterations", 1), ("interval", 1), ("warm_up", 0)):
            if getattr(self, name) < least:
                raise ArgumentError(f"{name} is {getattr(self, name)}, expected {least} or more")


CHANGEABLE = frozenset({"iterations", "platform", "threads"})
"""Settings that may change when a run is resumed."""


@dataclass(frozen=True)
class ExchangeResult:
    """Where a run ended: its folder, what summary.json holds, and whether it stopped before its end."""

    folder: Path
    summary: dict[str, Any]
    interrupted: bool


def run_exchange(
    given: Mapping[str, Any],
    *,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    backend: Any = "serial",
    workers: int | None = None,
    progress: bool = True,
    say: Callable[[str], None] = print,
) -> ExchangeResult:
    """Run replica exchange of a structure file, or continue a run.

    Parameters
    ----------
    given : mapping
        Settings by the names of `ExchangeSettings` and those of `SHARED`.
    folder : str or path, optional
        Where to write; named after the structure if not given.
    resume : bool
        Continue the run in `folder`, with its own settings; `given` may make it longer.
    overwrite : bool
        Replace an earlier run in `folder`.
    backend, workers
        As for `ReplicaExchange`.
    progress : bool
    say : callable
        Receives one line of text per stage.
    """
    if resume and overwrite:
        raise ArgumentError("--resume continues a run and --overwrite replaces it; give one of them")
    if resume:
        own, shared, target = _settings_to_resume(given, folder)
    else:
        own, shared = _resolve(given)
        target = Path(folder) if folder is not None else Path(f"{run_name(shared)}-exchange")
    go_on = resume and (target / CHECKPOINT).exists()
    if go_on:
        model = make_model(shared, load_structure(target / TOPOLOGY))
        prepared = positions = None
    else:
        prepared = prepare_structure(shared)
        for note in prepared.notes:
            say(f"note: {note}")
        model = make_model(shared, written_and_read(prepared))
        positions = find_reference_geometry(model, say, progress)
    temperatures = geometric_temperatures(own.tmin, own.tmax, own.replicas)
    tree = model.tree
    say(
        f"{run_name(shared)}: {tree.n_atoms} atoms, {tree.n_torsions} torsions, {tree.n_bends} bends; {own.replicas} "
        f"replicas from {own.tmin:g} to {own.tmax:g} K, {'exact' if own.exact else shared.preset}, {shared.solvent}, "
        f"{shared.forcefield}"
    )
    with ReplicaExchange(
        tree,
        model.system,
        temperatures,
        moves=_moves(own, shared),
        sweeps=max(1, round(own.interval / TRAJECTORY_STEPS)),
        positions=positions,
        hydrogen_mass=shared.hydrogen_mass,
        platform=shared.platform,
        properties=None if shared.threads is None else {"Threads": str(shared.threads)},
        seed=shared.seed or 0,
        backend=backend,
        workers=workers,
        folder=target,
        topology=model.structure.topology,
        resume=go_on,
        overwrite=overwrite or resume,
    ) as exchange:
        write_text(target / SETTINGS, _to_toml(own, shared))
        if prepared is not None:
            prepared.write(target / TOPOLOGY)  # with all that a resumed run reads from it
        if go_on:
            say(f"continuing from iteration {exchange.iterations} of {own.iterations}")
        if own.warm_up and not exchange.tuned:
            say("tuning time steps ...")
            exchange.warm_up(own.warm_up)
            steps = ", ".join(f"{1000 * h:.1f}" for h in exchange.steps[:, 0])
            say(f"torsional time steps from the lowest temperature to the highest: {steps} fs")
        with StopRequest() as stop:
            exchange.run(own.iterations, progress=progress, stop=lambda: stop.made)
        summary = {"peptidyn": __version__, **exchange.summary(), "settings": {**asdict(own), **_shared_values(shared)}}
        summary["complete"] = exchange.iterations >= own.iterations
        write_text(target / SUMMARY, json.dumps(summary, indent=1) + "\n")
        return ExchangeResult(target, summary, not summary["complete"])


def _moves(own: ExchangeSettings, shared: RunSettings) -> list[Move]:
    """Torsional HMC with momenta kept in part; for exact sampling, Cartesian HMC in turn with it."""
    moves: list[Move] = [TorsionalHMC(shared.timestep_ps, TRAJECTORY_STEPS, friction=shared.friction)]
    if own.exact:
        moves.append(CartesianHMC(0.001, TRAJECTORY_STEPS))
    return moves


def _resolve(
    given: Mapping[str, Any], base: tuple[ExchangeSettings, RunSettings] | None = None
) -> tuple[ExchangeSettings, RunSettings]:
    names = {field.name for field in fields(ExchangeSettings)}
    own = replace(base[0] if base else ExchangeSettings(), **{k: v for k, v in given.items() if k in names})
    rest = {k: v for k, v in given.items() if k not in names}
    for name in rest:
        if name not in SHARED:
            known = ", ".join((*sorted(names), *SHARED))
            raise ArgumentError(f"there is no setting {name!r} of replica exchange; known are {known}")
    shared = resolve_settings(rest, base=base[1] if base else None)
    if own.exact and shared.solvent in WATER_MODELS:
        raise ArgumentError(
            f"exact sampling moves every atom and the waters of {shared.solvent} are rigid; use implicit solvent, or "
            "leave exact out"
        )
    return own, shared


def _shared_values(shared: RunSettings) -> dict[str, Any]:
    values = asdict(shared)
    return {name: values[name] for name in SHARED}


def _to_toml(own: ExchangeSettings, shared: RunSettings) -> str:
    values = {**asdict(own), **_shared_values(shared)}
    if shared.soft is not None:
        del values["preset"]  # soft coordinates were given as words
    lines = [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in values.items() if v is not None]
    return "\n".join(lines) + "\n"


def _settings_to_resume(
    given: Mapping[str, Any], folder: str | os.PathLike[str] | None
) -> tuple[ExchangeSettings, RunSettings, Path]:
    if folder is None:
        raise ArgumentError("--resume needs -o with the folder of the run, and takes its settings from there")
    target = Path(folder)
    if not (target / SETTINGS).exists():
        raise ArgumentError(f"{target} holds no run to resume: there is no {SETTINGS} in it")
    stored = _resolve(read_toml(target / SETTINGS))
    own, shared = _resolve(given, stored)
    before = {**asdict(stored[0]), **_shared_values(stored[1])}
    after = {**asdict(own), **_shared_values(shared)}
    for name, value in after.items():
        if value != before[name] and name not in CHANGEABLE:
            raise ArgumentError(
                f"{name} was {before[name]} when the run in {target} began and is {value} now; a resumed run may "
                "change its number of iterations, platform and threads only"
            )
    return own, shared, target
