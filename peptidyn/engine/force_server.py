"""Forces of a Context for compiled code, through OpenMM's C functions: no Python between two steps.

OpenMM's library has a C function for every method. Compiled loops call them by their addresses (see
`peptidyn.kernels.foreign`), which saves what Python costs per step and lets other threads run. What they cannot do is
pass on an exception. So only Contexts are served whose force calls raise none: on the Reference and CPU platforms, with
OpenMM's own forces. All others are asked from Python, with the same results.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openmm

from peptidyn.integrators.mover import MANY_MOLECULES
from peptidyn.kernels.lanes import KIND
from peptidyn.model.tree import TreeModel

PLATFORMS = ("Reference", "CPU")

FORCES = frozenset({
    "CMAPTorsionForce", "CMMotionRemover", "CustomAngleForce", "CustomBondForce", "CustomCentroidBondForce",
    "CustomCompoundBondForce", "CustomExternalForce", "CustomGBForce", "CustomHbondForce", "CustomManyParticleForce",
    "CustomNonbondedForce", "CustomTorsionForce", "GBSAOBCForce", "HarmonicAngleForce", "HarmonicBondForce",
    "NonbondedForce", "PeriodicTorsionForce", "RBTorsionForce",
})  # fmt: skip
"""Forces that OpenMM computes by itself; those of Python or of plugins may raise errors of their own."""

_FUNCTIONS = (
    "OpenMM_Context_setPositions", "OpenMM_Context_getState_2", "OpenMM_State_getForces", "OpenMM_Vec3Array_get",
    "OpenMM_State_destroy",
)  # fmt: skip
"""In the order of the places of `peptidyn.kernels.foreign`."""


@cache
def _library() -> Any:
    """Return OpenMM's library if it has the C functions that are needed, or None."""
    names = {"win32": "OpenMM.dll", "darwin": "libOpenMM.dylib"}
    folder = Path(openmm.version.openmm_library_path)
    try:
        library = ctypes.CDLL(str(folder / names.get(sys.platform, "libOpenMM.so")))
        for name in (*_FUNCTIONS, "OpenMM_Vec3Array_create", "OpenMM_Vec3Array_destroy"):
            getattr(library, name)
    except (OSError, AttributeError):
        return None
    library.OpenMM_Vec3Array_create.restype = ctypes.c_void_p
    library.OpenMM_Vec3Array_create.argtypes = [ctypes.c_int]
    library.OpenMM_Vec3Array_destroy.argtypes = [ctypes.c_void_p]
    return library


def can_serve(context: Any) -> bool:
    """Whether force calls of a Context can be made by compiled code."""
    return (
        KIND == "vector"
        and sys.maxsize > 2**32
        and _library() is not None
        and context.getPlatform().getName() in PLATFORMS
        and all(type(force).__name__ in FORCES for force in context.getSystem().getForces())
    )


class ForceServer:
    """Where compiled code finds the forces of a Context.

    Attributes
    ----------
    calls : (N_SERVER,) int64
        Addresses and handles, as `peptidyn.kernels.foreign` expects them; valid while this object and the Context live.
    """

    def __init__(self, context: Any):
        library = _library()
        vectors = library.OpenMM_Vec3Array_create(context.getSystem().getNumParticles())
        weakref.finalize(self, library.OpenMM_Vec3Array_destroy, vectors)
        addresses = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS]
        self.calls = np.array([*addresses, int(context.this), vectors, openmm.State.Forces, -1], dtype=np.int64)

    def set_groups(self, groups: int) -> None:
        """Ask for the forces of these groups, a set of bits."""
        self.calls[-1] = groups


def serve(tree: TreeModel, context: Any) -> ForceServer | None:
    """Return a server of forces for steps of `tree`, or None where Python has to ask for them.

    Many molecules are moved on all cores, and virtual sites are placed anew before every force call: not here.
    """
    if tree.n_molecules < MANY_MOLECULES and not len(tree.virtual_sites) and can_serve(context):
        return ForceServer(context)
    return None
