"""`peptidyn bench peers`: forward dynamics beside Pinocchio, on the same tree with the same numbers.

Pinocchio (package ``pin``) is called from Python as its users call it, with its Data made once. `kernels` is the same
on our side: one call, scratch made once. `accelerations` is the public method, which checks its arguments and allocates
what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from peptidyn.analysis.benchmark_dynamics import ForwardDynamics
from peptidyn.analysis.benchmarks import (
    Task,
    check_sizes,
    first_calls,
    format_machine,
    interleave,
    load,
    machine,
    polyalanine,
)
from peptidyn.errors import ArgumentError, MissingDependencyError
from peptidyn.model.kinematics import FREE
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.progress import Progress
from peptidyn.solvers.articulated import ArticulatedSolver

SIZES = (100, 300)
LARGEST = 300
"""Pinocchio's Data holds 32 n^3 bytes, and needs twice that while it is made: 1.9 GB for 300 torsions."""

KERNELS, PUBLIC = "peptidyn kernels", "peptidyn accelerations"


def _pinocchio() -> ModuleType:
    try:
        import pinocchio
    except ImportError as error:
        raise MissingDependencyError(
            "this benchmark needs Pinocchio, which is not installed; install it with: pip install pin"
        ) from error
    return pinocchio


class PinocchioChain:
    """A molecule with a free base and soft torsions as a Pinocchio model.

    Pinocchio writes base twists in body axes, linear part first; `theirs` and `ours` translate.
    """

    def __init__(self, tree: TreeModel, state: State):
        pin = _pinocchio()
        self.model = pin.Model()
        w, x, y, z = state.base_rotation[0]
        self.rotation = pin.Quaternion(w, x, y, z).matrix()
        for l in range(tree.n_links):
            up = int(tree.parent[l])
            if tree.joint[l] == FREE:
                joint, placement = pin.JointModelFreeFlyer(), pin.SE3.Identity()
            else:
                joint = pin.JointModelRevoluteUnaligned(tree.axis[l].copy())
                placement = pin.SE3(np.eye(3), tree.origin[l] - tree.origin[up])
            # joints are numbered from 1 in the order of the links; 0 is the world
            number = self.model.addJoint(up + 1, joint, placement, f"link {l}")
            inertia = pin.Inertia(float(tree.link_mass[l]), tree.link_com[l].copy(), tree.link_inertia[l].copy())
            self.model.appendBodyToJoint(number, inertia, pin.SE3.Identity())
        self.model.gravity.linear[:] = 0.0
        self.data = self.model.createData()
        turned = (state.q - tree.q_reference)[tree.coordinate[1:]]
        self.q = np.concatenate([state.base_position[0], [x, y, z, w], turned])

    def theirs(self, vector: np.ndarray) -> np.ndarray:
        """Return one of our vectors over degrees of freedom in Pinocchio's convention."""
        out = vector.copy()
        out[:3], out[3:6] = self.rotation.T @ vector[3:6], self.rotation.T @ vector[:3]
        return out

    def our_acceleration(self, a: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return Pinocchio's accelerations `a` in our convention; `v` are its velocities."""
        out = a.copy()
        # from the rate of the twist to the acceleration of the base origin
        linear = a[:3] + np.cross(v[3:6], v[:3])
        out[:3], out[3:6] = self.rotation @ a[3:6], self.rotation @ linear
        return out


def measure_peers(sizes: Sequence[int] = SIZES, rounds: int = 7, progress: bool = False) -> dict[str, Any]:
    """Time forward dynamics of peptidyn and Pinocchio on polyalanine chains.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of torsions, at most `LARGEST`.
    rounds : int
        Interleaved rounds.
    progress : bool
        Show progress on standard error.

    Returns
    -------
    dict
        Ready for JSON; times in seconds. The ratio is that of our kernels to the faster of Pinocchio's conventions.
    """
    chosen = check_sizes(sizes)
    if chosen[-1] > LARGEST:
        raise ArgumentError(
            f"a size is {chosen[-1]}, expected at most {LARGEST} torsions: Pinocchio takes 32 n^3 bytes of memory"
        )
    _pinocchio()
    before = load()
    rows = [_measure(n, rounds, progress) for n in chosen]
    return {
        "benchmark": "peers",
        "molecule": "capped polyalanine, soft phi and psi, free base",
        "machine": machine(),
        "rounds": rounds,
        "rows": rows,
        "load": [before, load()],
    }


def _measure(n: int, rounds: int, progress: bool) -> dict[str, Any]:
    pin = _pinocchio()
    tree, state = polyalanine(n)
    v, tau = np.random.default_rng(5).standard_normal((2, tree.n_dof))
    dynamics, solver, peer = ForwardDynamics(tree, state), ArticulatedSolver(), PinocchioChain(tree, state)
    our_q = state.q.copy()
    their_v, their_tau = peer.theirs(v), peer.theirs(tau)
    model, data, q, conventions = peer.model, peer.data, peer.q, pin.Convention
    tasks: dict[str, Task] = {
        KERNELS: lambda: dynamics.one(our_q, v, tau),
        PUBLIC: lambda: solver.accelerations(tree, state, v, tau),
        "pinocchio.aba WORLD": lambda: pin.aba(model, data, q, their_v, their_tau, conventions.WORLD),
        "pinocchio.aba LOCAL": lambda: pin.aba(model, data, q, their_v, their_tau, conventions.LOCAL),
    }
    first_calls(tasks)
    with Progress(rounds * len(tasks), f"bench peers, {n} torsions", unit="turns", enabled=progress) as bar:
        timings = interleave(tasks, rounds, bar)
    ours = dynamics.one(our_q, v, tau)
    other = peer.our_acceleration(np.array(pin.aba(model, data, q, their_v, their_tau)), their_v)
    best = min(t.cpu for name, t in timings.items() if name.startswith("pinocchio"))
    return {
        "n": n,
        "cpu": {name: t.cpu for name, t in timings.items()},
        "wall": {name: t.wall for name, t in timings.items()},
        "kernels_ratio": timings[KERNELS].cpu / best,
        "accelerations_ratio": timings[PUBLIC].cpu / best,
        "difference": float(np.linalg.norm(ours - other) / np.linalg.norm(other)),
    }


def format_peers(report: Mapping[str, Any]) -> str:
    """Return the report as text for people."""
    rows = report["rows"]
    lines = [
        f"{report['molecule']}; {report['rounds']} interleaved rounds",
        "",
        "Forward dynamics; CPU time of the calling thread, minimum, us",
        f"{'torsions':38}" + "".join(f"{row['n']:>10,d}" for row in rows),
    ]
    lines += [f"{name:38}" + "".join(f"{1e6 * row['cpu'][name]:>10.1f}" for row in rows) for name in rows[0]["cpu"]]
    for title, key in (("kernels", "kernels_ratio"), ("accelerations", "accelerations_ratio")):
        lines.append(f"{f'{title} / faster pinocchio.aba':38}" + "".join(f"{row[key]:>10.2f}" for row in rows))
    lines.append(f"{'relative difference of the answers':38}" + "".join(f"{row['difference']:>10.0e}" for row in rows))
    return "\n".join([*lines, "", *format_machine(report)])
