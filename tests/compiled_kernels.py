"""Kernels compiled once in a run of all tests, not once in every worker of it.

With an empty cache the kernels take minutes to compile, and workers that meet them at the same time would all do so.
Here they divide them, largest first; each finds in the cache what the others have compiled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import peptidyn as ptd

PATIENCE = 600.0
"""Seconds to wait for the other workers: one that was killed never ends."""


def _molecule(soft: str = "phi psi chi"):
    structure = ptd.build_peptide("AWPK")
    return structure, ptd.build_tree(structure, soft)


def _kinematics() -> None:
    """What all others need."""
    structure, tree = _molecule()
    v = np.ones(tree.n_dof)
    ptd.inverse_dynamics(tree, tree.state(structure.positions), v, v)


def _solver(*names: str) -> None:
    _, tree = _molecule()
    b = np.ones(tree.n_dof)
    for name in names:
        solver = ptd.get_solver(name)
        solver.solve(tree, tree.reference, b)
        solver.log_det(tree, tree.reference)
        solver.accelerations(tree, tree.reference, b, b)


def _dynamics() -> None:
    structure, tree = _molecule()
    integrator = ptd.TorsionLangevinIntegrator(tree, 300.0, 1.0, 0.004, seed=1)
    system = ptd.make_system(structure.topology, "vacuum")
    ptd.TorsionSimulation(structure.topology, system, integrator, "Reference").step(2)


def _potential() -> None:
    _, tree = _molecule()
    potential = ptd.FixmanPotential(tree, 300.0)
    potential.torque(tree.reference)
    potential.energies_and_torques(np.tile(tree.q_reference, (5, 1)))
    ptd.fixman_weights(tree, np.tile(tree.positions(tree.reference), (3, 1, 1)), 300.0)


def _many_states() -> None:
    _, tree = _molecule()
    v = np.ones((5, tree.n_dof))
    ptd.get_solver("articulated").accelerations_of_states(tree, np.tile(tree.q_reference, (5, 1)), v, v)


FIRST = "kinematics"
PIECES: dict[str, Callable[[], None]] = {
    FIRST: _kinematics,
    "virtual-work": partial(_solver, "virtual-work"),
    "spatial-operator": partial(_solver, *(f"spatial-operator:fd{k}" for k in (1, 2, 3, 4))),
    "dynamics": _dynamics,
    "fixman-points": partial(_solver, "fixman-points"),
    "fixman": partial(_solver, "fixman"),
    "others": partial(_solver, "udu", "articulated"),
    "many states": _many_states,
    "potential": _potential,
}


def compile_together(folder: Path) -> None:
    """Compile pieces that no other worker has begun, then wait for the rest; workers meet in `folder`."""
    folder.mkdir(exist_ok=True)
    for name, compile_piece in PIECES.items():
        if _claim(folder / f"{name}.begun"):
            try:
                compile_piece()
            except Exception:  # what is broken fails in the tests of it, which say more
                pass
            finally:
                (folder / f"{name}.done").touch()
        elif name == FIRST:
            _wait([folder / f"{name}.done"])
    _wait([folder / f"{name}.done" for name in PIECES])


def _claim(mark: Path) -> bool:
    """Make the file `mark`; False if another worker was first."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _wait(marks: list[Path]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not all(mark.exists() for mark in marks) and time.monotonic() < deadline:
        time.sleep(0.1)
