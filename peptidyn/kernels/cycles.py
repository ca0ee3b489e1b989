"""Whole time steps as compiled code: a program of moves and a force call, again and again, without Python in between.

Other threads of Python run meanwhile.
"""

from __future__ import annotations

from peptidyn.kernels.compiling import njit
from peptidyn.kernels.foreign import ask_forces
from peptidyn.kernels.motions import DRIFT_ITERATIONS, run_range
from peptidyn.kernels.passes import START

NO_FORCES = 1
"""Status of a cycle whose forces are not finite; those below zero are the ones of `run_range`."""


@njit(cache=True, error_model="numpy", nogil=True)
def run_cycles(program, numbers, noise, counts, server, packed, scratch, layout, motion, vectors, cartesian, status):
    """Run a program and ask for forces at its end, once for every row of `noise` (count, n_dof or 0).

    Returns how many cycles were made, and the status of the one that failed, or 0. Rows of `noise` are the normals of
    `THERMALISE`. counts (2,) are the cycles that have begun, as they begin, and those with a drift that needed
    Anderson's method.
    """
    normals = vectors[3]
    x, force, _ = cartesian
    for cycle in range(len(noise)):
        counts[0] = cycle + 1
        for i in range(noise.shape[1]):
            normals[i] = noise[cycle, i]
        worst = run_range(
            program, numbers, START, len(status), packed, scratch, layout, motion, vectors, cartesian, status
        )  # fmt: skip
        if worst < 0:
            return cycle, worst
        for m in range(len(status)):
            if status[m] > DRIFT_ITERATIONS:
                counts[1] += 1
                break
        if not ask_forces(server, x, force):
            return cycle, NO_FORCES
    return len(noise), 0
