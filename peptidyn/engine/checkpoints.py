"""Checkpoints: everything a run needs to continue exactly, in one npz file without pickled objects.

q, base poses and momenta are stored as they are in memory, so that a run on a deterministic platform continues bit for
bit. A checkpoint fits one model: the fingerprint of the tree is stored with it, and the reference geometry if that is
not the one the tree was built with. A checksum shows damage (`peptidyn.core.sealed_files`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError, CheckpointError
from peptidyn.core.sealed_files import read_npz, write_npz
from peptidyn.model.state import State

FORMAT = 2
"""Raised when the meaning of a stored field changes."""

SIMULATION, EXCHANGE = "simulation", "replica exchange"
"""What a checkpoint may be of."""

_ARRAYS = ("q", "base_position", "base_rotation", "momentum", "box", "geometry", "joint_inertia")


def save(
    path: str | os.PathLike[str],
    context: Any,
    integrator: Any,
    geometry: np.ndarray | None = None,
    extra: dict[str, Any] | None = None,
) -> None:
    """Write a checkpoint atomically: a crash leaves the earlier file, or the new one, never half of it.

    Parameters
    ----------
    path : str or path
    context : openmm.Context
    integrator : TorsionIntegrator
        The one of `context`.
    geometry : (n_atoms, 3), nm, optional
        Positions that were given to ``tree.with_geometry`` after the tree was built.
    extra : dict, optional
        Anything that JSON holds.
    """
    state, momentum = integrator.motion()
    about = {
        "fingerprint": integrator.tree.fingerprint,
        "settings": integrator.settings,
        "counters": integrator.counters,
        "rng": integrator.rng.bit_generator.state,
        "barostat": None if integrator.barostat is None else integrator.barostat.state,
        "step": context.getStepCount(),
        "time": context.getTime()._value,
        "extra": extra or {},
    }
    arrays = {
        "q": state.q,
        "base_position": state.base_position,
        "base_rotation": state.base_rotation,
        "momentum": momentum,
        "box": np.array(context.getState().getPeriodicBoxVectors(asNumpy=True)._value),
        "geometry": np.empty((0, 3)) if geometry is None else geometry,
        "joint_inertia": integrator.tree.joint_inertia,
    }
    write(path, SIMULATION, about, arrays)


def load(path: str | os.PathLike[str], context: Any, integrator: Any) -> tuple[np.ndarray | None, dict[str, Any]]:
    """Put the integrator and its Context into the state of a checkpoint.

    Return what it held beside that: the reference geometry (n_atoms, 3), nm, or None, and the extra data.

    Raises CheckpointError, with nothing changed, if the file is damaged or belongs to another model, another kind of
    integrator or other settings.
    """
    about, arrays = read(path, SIMULATION, _ARRAYS)
    tree = integrator.tree
    geometry = arrays["geometry"] if len(arrays["geometry"]) else None
    if geometry is not None and geometry.shape == (tree.n_atoms, 3):
        tree = tree.with_geometry(geometry)
    inertia = arrays["joint_inertia"]
    if integrator.metric == "auto" and inertia.shape == (tree.n_coordinates,):
        tree = tree.with_joint_inertia(inertia)  # a metric stays as it is for the whole run
    if tree.fingerprint != about["fingerprint"]:
        raise CheckpointError(
            f"{path} belongs to another model (other atoms, soft coordinates, masses, joint inertias or reference "
            "geometry); build the tree that the checkpoint was made with"
        )
    for name in {**about["settings"], **integrator.settings}:
        there, here = about["settings"].get(name), integrator.settings.get(name)
        if there != here:
            raise CheckpointError(
                f"{path} was made with {name} = {there} and this integrator has {here}; make the integrator with the "
                "settings of the checkpoint, and change them after loading"
            )
    if (about.get("barostat") is None) != (integrator.barostat is None):
        there, here = ("has a" if found else "has no" for found in (about.get("barostat"), integrator.barostat))
        raise CheckpointError(
            f"{path} {there} barostat and this System {here} one; add or leave out the MonteCarloBarostat as before"
        )
    try:
        state = State.make(tree, arrays["q"], arrays["base_position"], arrays["base_rotation"])
        momentum = tree.check_dof_vector("momenta", arrays["momentum"])
    except ArgumentError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    integrator.set_tree(tree)
    integrator.rng.bit_generator.state = about["rng"]
    integrator.counters = about["counters"]
    if integrator.barostat is not None:
        integrator.barostat.state = about["barostat"]
    context.setPeriodicBoxVectors(*arrays["box"])
    context.setTime(about["time"])
    context.setStepCount(about["step"])
    integrator.set_motion(state, momentum)
    return geometry, about["extra"]


def write(path: str | os.PathLike[str], kind: str, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a description, of values that JSON holds, and arrays; the file appears only when it is complete."""
    text = json.dumps({"format": FORMAT, "kind": kind, **about})
    write_npz(path, {"about": np.array(text), **arrays})


def read(
    path: str | os.PathLike[str], kind: str = SIMULATION, names: Sequence[str] = _ARRAYS
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the named arrays of a checkpoint.

    CheckpointError if there is none, or it is damaged, of another kind or another version, or numbers are not finite.
    """
    if not os.path.lexists(path):
        raise CheckpointError(f"there is no checkpoint {path}, and so no run to resume")
    stored = read_npz(path)
    try:
        about = json.loads(str(stored["about"]))
        arrays = {name: stored[name] for name in names}
        found = about["format"], about["kind"]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is no checkpoint of this version of peptidyn") from error
    if found[0] != FORMAT:
        raise CheckpointError(
            f"{path} has format {found[0]} and this version of peptidyn reads {FORMAT}; use the version that wrote it"
        )
    if found[1] != kind:
        raise CheckpointError(f"{path} is a checkpoint of a {found[1]}, expected one of a {kind}")
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise CheckpointError(f"{path} cannot be used: {name} holds numbers that are not finite")
    return about, arrays
