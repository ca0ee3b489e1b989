"""One stretch of one replica, as a pure function: the same input gives the same output on any worker.

Contexts are costly to make and hold nothing that matters between stretches, so every process keeps those it has made
and lends them out.
"""

from __future__ import annotations

import copy
import hashlib
import multiprocessing
import pickle
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import openmm

from peptidyn.core.one_core import OneCore
from peptidyn.model.tree import TreeModel
from peptidyn.sampling.moves import Move
from peptidyn.sampling.tuning import StepTuner
from peptidyn.sampling.walker import Checkpoint, Walker

KEPT = 4
"""Recipes whose walkers a process keeps."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """What all replicas of a run share, ready to be sent to another process.

    Attributes
    ----------
    tree : TreeModel
        With the joint inertias of the run.
    system : str
        The openmm.System as XML.
    moves : tuple of Move
    hydrogen_mass : float or None
    platform : str or None
    properties : dict
    key : str
        Hash of all of them.
    """

    tree: TreeModel
    system: str
    moves: tuple[Move, ...]
    hydrogen_mass: float | None = None
    platform: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    key: str = field(init=False)

    def __post_init__(self) -> None:
        parts = [
            self.tree.fingerprint,
            self.system,
            [(m.settings, m.target) for m in self.moves],
            self.hydrogen_mass,
            self.platform,
        ]
        object.__setattr__(self, "key", hashlib.sha256(pickle.dumps([*parts, self.properties])).hexdigest()[:32])

    def make_walker(self, temperature: float) -> Walker:
        """Return a walker in a new Context."""
        return Walker(
            self.tree,
            openmm.XmlSerializer.deserialize(self.system),
            temperature,
            hydrogen_mass=self.hydrogen_mass,
            platform=self.platform,
            properties=self.properties,
        )


@dataclass(frozen=True, eq=False)
class Stretch:
    """Outcome of a stretch.

    Attributes
    ----------
    checkpoint : dict
        Where the replica is now.
    q : (n, n_coordinates)
        Soft coordinates of the frames, rad.
    positions : (n, n_atoms, 3) float32
        nm.
    potential : (n,)
        V, kJ/mol.
    metric : (n,)
        U_F / kT = ln(det M / J^2) / 2.
    final_potential, final_metric : float
        The same at the end of the stretch.
    counts : list of (proposed, accepted, force calls) per move
    """

    checkpoint: Checkpoint
    q: np.ndarray
    positions: np.ndarray
    potential: np.ndarray
    metric: np.ndarray
    final_potential: float
    final_metric: float
    counts: list[tuple[int, int, int]]


def start_checkpoint(recipe: Recipe, positions: np.ndarray, seed: np.random.SeedSequence) -> Checkpoint:
    """Return the checkpoint of a replica that begins at Cartesian positions (n_atoms, 3), nm."""
    tree = recipe.tree.with_geometry(positions)
    state = tree.reference
    return {
        "joint_inertia": tree.joint_inertia.copy(),
        "geometry": np.array(positions),
        "q": state.q.copy(),
        "base_position": state.base_position.copy(),
        "base_rotation": state.base_rotation.copy(),
        "momentum": np.zeros(tree.n_dof),
        "momenta_valid": False,
        "rng": np.random.default_rng(seed).bit_generator.state,
    }


def run_stretch(
    recipe: Recipe, checkpoint: Checkpoint, temperature: float, steps: Sequence[float], sweeps: int, every: int
) -> Stretch:
    """Continue a replica for `sweeps` sweeps at a temperature (K), with these steps of the moves.

    A frame is kept after every `every` sweeps.
    """
    with _borrowed(recipe) as (walker, moves):
        _prepare(walker, moves, checkpoint, temperature, steps)
        frames: list[tuple[np.ndarray, np.ndarray, float, float]] = []
        for i in range(1, sweeps + 1):
            for move in moves:
                move.apply(walker)
            if i % every == 0:
                x = walker.positions().astype(np.float32)
                frames.append((walker.q, x, walker.energy(), walker.mover.fixman_energy()))
        n, tree = len(frames), recipe.tree
        return Stretch(
            walker.checkpoint(),
            np.array([f[0] for f in frames]).reshape(n, tree.n_coordinates),
            np.array([f[1] for f in frames], dtype=np.float32).reshape(n, tree.n_atoms, 3),
            np.array([f[2] for f in frames]),
            np.array([f[3] for f in frames]),
            walker.energy(),
            walker.mover.fixman_energy(),
            [(m.proposed, m.accepted, m.force_calls) for m in moves],
        )


def tune_stretch(
    recipe: Recipe, checkpoint: Checkpoint, temperature: float, steps: Sequence[float], sweeps: int
) -> tuple[Checkpoint, list[StepTuner | None]]:
    """Tune the steps of all moves at a temperature (K) for `sweeps` sweeps; return the replica and the record.

    Moves without a Metropolis test keep their step, and have no record.
    """
    with _borrowed(recipe) as (walker, moves):
        _prepare(walker, moves, checkpoint, temperature, steps)
        tuners = [StepTuner(m.step, m.target, m.largest) if m.metropolised else None for m in moves]
        for move, tuner in zip(moves, tuners, strict=True):
            move.tuner = tuner
        try:
            for _ in range(sweeps):
                for move in moves:
                    move.apply(walker)
        finally:
            for move in moves:
                move.tuner = None
        return walker.checkpoint(), tuners


def _prepare(
    walker: Walker, moves: list[Move], checkpoint: Checkpoint, temperature: float, steps: Sequence[float]
) -> None:
    walker.restore(checkpoint)
    walker.set_temperature(temperature)
    for move, step in zip(moves, steps, strict=True):
        move.reset()
        move.step = step


_lock = threading.Lock()
_core: OneCore | None = None
_idle: dict[str, list[tuple[Walker, list[Move]]]] = {}


@contextmanager
def _borrowed(recipe: Recipe) -> Iterator[tuple[Walker, list[Move]]]:
    """Lend a walker of the recipe that nobody else uses; one that failed is not taken back."""
    with _lock:
        _idle[recipe.key] = _idle.pop(recipe.key, [])
        while len(_idle) > KEPT:
            del _idle[next(iter(_idle))]
        lent = _idle[recipe.key].pop() if _idle[recipe.key] else None
    if lent is None:
        lent = (recipe.make_walker(300.0), [copy.copy(move) for move in recipe.moves])
    with _on_one_core(recipe):
        yield lent
    with _lock:
        _idle.setdefault(recipe.key, []).append(lent)


@contextmanager
def _on_one_core(recipe: Recipe) -> Iterator[None]:
    """Keep a worker process whose forces are computed by one thread on one core, from its first stretch on."""
    global _core
    if _core is None:
        worker = multiprocessing.parent_process() is not None
        _core = OneCore(worker and recipe.platform == "CPU" and recipe.properties.get("Threads") == "1").__enter__()
    _core.skip()
    yield
    _core.look()
