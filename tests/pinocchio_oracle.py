"""The same tree in Pinocchio: an outside oracle for mass matrix, its inverse and forward dynamics.

Pinocchio writes base twists in the body frame, linear part first; `to_theirs` maps our generalised velocities
(angular, then linear, world axes) to its own, so M_ours = T^T M_theirs T.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from peptidyn.model.kinematics import FIXED, FREE, POINT, PRISMATIC
from peptidyn.model.tree import State, TreeModel

if sys.platform != "win32":
    import pinocchio as pin


class PinocchioTree:
    """A TreeModel as a Pinocchio model, in one state."""

    def __init__(self, tree: TreeModel, state: State):
        if sys.platform == "win32":
            pytest.skip("Pinocchio has no wheels for Windows")
        self.tree = tree
        self.model = pin.Model()
        joints: dict[int, int] = {}
        q: list[float] = []
        self.blocks: list[tuple[int, int, np.ndarray | None]] = []  # our dof, their dof, base rotation
        for l in range(tree.n_links):
            up = int(tree.parent[l])
            m = int(tree.molecule[l])
            inertia = pin.Inertia(float(tree.link_mass[l]), tree.link_com[l].copy(), tree.link_inertia[l].copy())
            w, x, y, z = state.base_rotation[m]
            pose = pin.SE3(pin.Quaternion(w, x, y, z).matrix(), state.base_position[m].copy())
            if tree.joint[l] == FIXED:
                joints[l] = 0  # welded to the world: its mass does not matter
                self.fixed_pose = pose
                continue
            if tree.joint[l] == FREE:
                joint, placement = pin.JointModelFreeFlyer(), pin.SE3.Identity()
                q += [*state.base_position[m], x, y, z, w]
            elif tree.joint[l] == POINT:
                joint, placement = pin.JointModelTranslation(), pin.SE3.Identity()
                q += [*state.base_position[m]]
            else:
                kind = (
                    pin.JointModelPrismaticUnaligned if tree.joint[l] == PRISMATIC else pin.JointModelRevoluteUnaligned
                )
                joint = kind(tree.axis[l].copy())
                placement = pin.SE3(np.eye(3), tree.origin[l] - tree.origin[up])
                if joints[up] == 0:
                    placement = pose * placement
                q.append(state.q[tree.coordinate[l]] - tree.q_reference[tree.coordinate[l]])
            joints[l] = self.model.addJoint(joints.get(up, 0), joint, placement, f"link {l}")
            self.model.appendBodyToJoint(joints[l], inertia, pin.SE3.Identity())
            theirs = self.model.joints[joints[l]].idx_v
            self.blocks.append((int(tree.dof[l]), theirs, pose.rotation if tree.joint[l] == FREE else None))
            if tree.joint[l] == POINT:
                self.blocks += [(int(tree.dof[l]) + i, theirs + i, None) for i in (1, 2)]
            if tree.coordinate[l] >= 0 and tree.joint_inertia[tree.coordinate[l]] > 0:
                if not hasattr(self.model, "armature"):
                    pytest.skip("Pinocchio has joint inertias, which it calls armature, from version 3 on")
                self.model.armature[theirs] = tree.joint_inertia[tree.coordinate[l]]
        self.model.gravity.linear[:] = 0.0
        self.data = self.model.createData()
        self.q = np.array(q)
        self.to_theirs = np.zeros((self.model.nv, tree.n_dof))
        for ours, theirs, rotation in self.blocks:
            if rotation is None:
                self.to_theirs[theirs, ours] = 1.0
            else:
                self.to_theirs[theirs : theirs + 3, ours + 3 : ours + 6] = rotation.T
                self.to_theirs[theirs + 3 : theirs + 6, ours : ours + 3] = rotation.T

    def mass_matrix(self) -> np.ndarray:
        M = pin.crba(self.model, self.data, self.q)
        M = np.triu(M) + np.triu(M, 1).T
        return self.to_theirs.T @ M @ self.to_theirs

    def solve(self, b: np.ndarray) -> np.ndarray:
        inverse = pin.computeMinverse(self.model, self.data, self.q)
        inverse = np.triu(inverse) + np.triu(inverse, 1).T
        # T is orthogonal: T^-1 = T^T
        return self.to_theirs.T @ inverse @ self.to_theirs @ b

    def accelerations(self, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        theirs = self.to_theirs @ v
        a = pin.aba(self.model, self.data, self.q, theirs, self.to_theirs @ tau)
        a = np.array(a)
        for _, start, rotation in self.blocks:
            if rotation is not None:  # spatial to classical acceleration of the base origin
                a[start : start + 3] += np.cross(theirs[start + 3 : start + 6], theirs[start : start + 3])
        return self.to_theirs.T @ a
