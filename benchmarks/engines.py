"""Forward dynamics of a molecule with a free base and soft torsions in three engines.

ForwardDynamics  peptidyn's articulated kernels in one compiled call on scratch made once: the call of
                 `ArticulatedSolver.accelerations` without what Python does around it
PinocchioModel   Pinocchio (package ``pin``)
MujocoModel      MuJoCo

The other engines are called from Python as their users call them, with their data made once. `accelerations` translates
to our convention, for comparison; what is timed is `call`, the bare call of the engine on its own numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from peptidyn.core.errors import MissingDependencyError
from peptidyn.core.geometry import matrix_to_quaternion
from peptidyn.kernels.packing import pack
from peptidyn.kernels.states import forward_dynamics, forward_dynamics_states, make_scratch
from peptidyn.model.kinematics import FREE
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import raise_singular


class ForwardDynamics:
    """Forward dynamics of one tree; the base poses of `state` are used for all configurations."""

    def __init__(self, tree: TreeModel, state: State):
        self.tree = tree
        self._packed = pack(tree)
        self._scratch = make_scratch(self._packed, tree.n_molecules)
        self._rotation = state.base_rotation.copy()

    def one(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the accelerations (n_dof,) for q (n_coordinates,), v and tau (n_dof,)."""
        acc = np.empty(self.tree.n_dof)
        self._check(forward_dynamics(self._packed, self._scratch, q, self._rotation, v, tau, acc))
        return acc

    def many(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the accelerations (n_states, n_dof) for q (n_states, n_coordinates), v and tau (n_states, n_dof)."""
        acc, bad = forward_dynamics_states(self._packed, q, self._rotation[None], v, tau)
        self._check(bad)
        return acc

    def _check(self, bad: int) -> None:
        if bad >= 0:
            raise_singular(self.tree, bad)


def import_engine(module: str, package: str) -> Any:
    """Return an engine's module, or raise MissingDependencyError that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"{module} is not installed; install it with: pip install {package}") from error


class PinocchioModel:
    """The molecule in Pinocchio.

    Pinocchio writes base twists in body axes, linear part first.
    """

    LARGEST = 300
    """Its Data holds 32 n^3 bytes, and needs twice that while it is made: 1.9 GB for 300 torsions."""

    def __init__(self, tree: TreeModel, state: State):
        pin = self.pin = import_engine("pinocchio", "pin")
        self.tree = tree
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
        # Pinocchio orders joints by subtree: where the degree of freedom of each of our links went
        self.place = np.array([self.model.joints[l + 1].idx_v for l in range(1, tree.n_links)], dtype=np.int64)
        self.base = [*state.base_position[0], x, y, z, w]

    def coordinates(self, q: np.ndarray) -> np.ndarray:
        """Return its coordinates for soft coordinates q (n_coordinates,)."""
        tree = self.tree
        out = np.empty(self.model.nq)
        out[:7] = self.base
        out[self.place + 1] = (q - tree.q_reference)[tree.coordinate[1:]]
        return out

    def vector(self, ours: np.ndarray) -> np.ndarray:
        """Return one of our vectors over degrees of freedom in its convention."""
        out = np.empty_like(ours)
        out[:3], out[3:6] = self.rotation.T @ ours[3:6], self.rotation.T @ ours[:3]
        out[self.place] = ours[self.tree.dof[1:]]
        return out

    def call(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray, convention: str) -> Callable[[], Any]:
        """Return the bare call of aba, ``WORLD`` or ``LOCAL``, for our q, v and tau."""
        aba, model, data = self.pin.aba, self.model, self.data
        their_q, their_v, their_tau = self.coordinates(q), self.vector(v), self.vector(tau)
        which = getattr(self.pin.Convention, convention)
        return lambda: aba(model, data, their_q, their_v, their_tau, which)

    def accelerations(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the accelerations (n_dof,) in our convention."""
        a, their_v = np.array(self.call(q, v, tau, "WORLD")()), self.vector(v)
        out = np.empty_like(a)
        # from the rate of the twist to the acceleration of the base origin
        linear = a[:3] + np.cross(their_v[3:6], their_v[:3])
        out[:3], out[3:6] = self.rotation @ a[3:6], self.rotation @ linear
        out[self.tree.dof[1:]] = a[self.place]
        return out


class MujocoModel:
    """The molecule in MuJoCo, with nothing but bodies and joints: no geometry, gravity, limits or contacts.

    MuJoCo writes the base's angular velocity and torque in body axes, after the linear ones. Its forward dynamics makes
    and factors the joint-space inertia matrix, sparse along the branches, which is O(n) times the depth of the tree.
    """

    LARGEST = 1000
    """Its trees are at most 1024 bodies deep."""

    def __init__(self, tree: TreeModel, state: State):
        mujoco = self.mujoco = import_engine("mujoco", "mujoco")
        self.tree = tree
        self.model = mujoco.MjModel.from_xml_string(_describe(tree))
        self.data = mujoco.MjData(self.model)
        mujoco.mju_quat2Mat(matrix := np.empty(9), state.base_rotation[0])
        self.rotation = matrix.reshape(3, 3)
        self.base = np.concatenate([state.base_position[0], state.base_rotation[0]])
        names = [f"link {l}" for l in range(1, tree.n_links)]
        self.place = np.array([self.model.joint(name).dofadr[0] for name in names], dtype=np.int64)

    def _vector(self, ours: np.ndarray) -> np.ndarray:
        out = np.empty_like(ours)
        out[:3], out[3:6] = ours[3:6], self.rotation.T @ ours[:3]
        out[self.place] = ours[self.tree.dof[1:]]
        return out

    def call(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> Callable[[], Any]:
        """Return the bare call of mj_forward for our q, v and tau."""
        data = self.data
        data.qpos[:7] = self.base
        data.qpos[self.place + 1] = (q - self.tree.q_reference)[self.tree.coordinate[1:]]
        data.qvel[:] = self._vector(v)
        data.qfrc_applied[:] = self._vector(tau)
        forward, model = self.mujoco.mj_forward, self.model
        return lambda: forward(model, data)

    def accelerations(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the accelerations (n_dof,) in our convention."""
        self.call(q, v, tau)()
        a = np.array(self.data.qacc)
        out = np.empty_like(a)
        out[3:6], out[:3] = a[:3], self.rotation @ a[3:6]
        out[self.tree.dof[1:]] = a[self.place]
        return out


def _principal(inertia: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return principal moments (3,) and the quaternion (4,) of the principal axes.

    MuJoCo wants no moment larger than the other two together, which rounding may miss for flat bodies: a few units in
    the last place are taken off.
    """
    moments, axes = np.linalg.eigh(inertia)
    moments[2] = min(moments[2], (moments[0] + moments[1]) * (1.0 - 1e-15))
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    quaternion = np.empty(4)
    matrix_to_quaternion(axes, quaternion)
    return moments, quaternion


def _describe(tree: TreeModel) -> str:
    """Return the molecule in MuJoCo's XML; armature, damping and every other force are off by default or by flag."""

    def numbers(values: Any) -> str:
        return " ".join(repr(float(v)) for v in values)

    children: list[list[int]] = [[] for _ in range(tree.n_links)]
    for l in range(1, tree.n_links):
        children[tree.parent[l]].append(l)
    lines = [
        "<mujoco><compiler angle='radian' inertiafromgeom='false'/>",
        "<option gravity='0 0 0' jacobian='sparse'><flag constraint='disable' contact='disable' limit='disable' "
        "spring='disable' damper='disable' actuation='disable' warmstart='disable'/></option><worldbody>",
    ]
    stack: list[int | None] = [0]
    while stack:
        link = stack.pop()
        if link is None:
            lines.append("</body>")
            continue
        l = link
        place = tree.origin[l] - tree.origin[tree.parent[l]] if l else np.zeros(3)
        lines.append(f"<body pos='{numbers(place)}'>")
        lines.append(
            "<freejoint/>" if l == 0 else f"<joint name='link {l}' type='hinge' axis='{numbers(tree.axis[l])}'/>"
        )
        moments, quaternion = _principal(tree.link_inertia[l])
        lines.append(
            f"<inertial pos='{numbers(tree.link_com[l])}' mass='{float(tree.link_mass[l])!r}' "
            f"quat='{numbers(quaternion)}' diaginertia='{numbers(moments)}'/>"
        )
        stack.append(None)
        stack += children[l][::-1]
    return "".join([*lines, "</worldbody></mujoco>"])
