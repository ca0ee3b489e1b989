"""Forward dynamics from constraint forces, by the principle of virtual work; O(n).

K. Yamane and Y. Nakamura, "O(N) forward dynamics computation of open kinematic chains based on the principle of virtual
work". Every body is first taken as free. The constraint force of every joint is then found while bodies are added one
by one from the tips to the root (path 1), corrected from the root to the tips (path 2), and gives the accelerations.
Equation numbers are those of the paper. Legend, for body i that joint i joins to body u on the side of the root:

theta'_i                spatial velocity of body i: (angular velocity; velocity of the centre of mass), world axes
A_i, b_i                spatial inertia (a block for rotation and one for translation), gyroscopic force
o_i                     joint point: the origin of body i's link; r_C is the relative motion of bodies i and u there
K_i  (N_C, 6)           constrained directions, K r_C' = 0 (9); rows orthonormal
K_Ji (k, 6)             joint rates q' = K_J r_C' (10), and K K_J^T = 0 (11); k soft coordinates, N_C = 6 - k
H_ii, H_iu              K_i times the Jacobians of r_C by the motion of body i and of body u
n_J, n_i                joint torques, constraint force (N_C,); forces of joint inertias follow it
h_i                     the relative acceleration at o_i that velocities alone cause (29), before the product with K_i
t_i                     all forces on body i but the constraint forces (28)
a_i, S_i, S_ij          right-hand side, diagonal and off-diagonal blocks of the system for all constraint forces (31)
M_i                     inverse of the block of joint i after the elimination of all joints behind it (41)

Departures from print. (16): the Jacobians are those of body 0. (23), (28): t_i = f_i + H_Ji^T n_Ji - b_i less
H_Jj,i^T n_Jj of every joint j that body i carries, from the start. After (32): a_i = K_i h_i + H_iu A_u^-1 t_u
- H_ii A_i^-1 t_i. (53): the forces of the joints that body i carries enter with -H_Ji,i A_i^-1 H_j,i^T; here the body
accelerations (48) are formed and differenced (49), which is the same sum. (38): Lambda starts at body 0; a welded base
has A^-1 = 0. The off-diagonal blocks are not kept: S_ij n_j is what n_j makes body i accelerate at joint i, formed so.

Branched chains: bodies carry at most two joints towards the tips (`peptidyn.solvers.split_links`). Two such joints,
j = 1 and 2, couple through their body by S_21, and adding the joint of the body itself needs the four blocks of
Phi^-1 (43) at both: that is one elimination of the pair, 1 before 2, in `peptidyn.solvers.constraint_joints` for the
matrices and here for right-hand sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.core.jit import njit
from peptidyn.model.kinematics import FREE, PRISMATIC, link_twists
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.constraint_joints import OWN, UP, eliminate_joints, empty_joints, list_bodies
from peptidyn.solvers.protocol import FactorPool, ReusableFactor, ReusingSolver, raise_unfit
from peptidyn.solvers.spatial_algebra import add_cross, copy_matrix, fill_matrix
from peptidyn.solvers.split_links import FLOATING, GROUND, split_links

ROUNDS = 2
"""How often both paths are run; see `_accelerate`."""


# ---------------------------------------------------------------------- forces and velocities


@njit(cache=True)
def _add_wrench(r, wrench, sign, out):
    """Add the wrenches (6, m) at a point `r` away from a centre of mass, taken there, times `sign`, to `out` (6, m)."""
    for c in range(wrench.shape[1]):
        x, y, z = wrench[3, c], wrench[4, c], wrench[5, c]
        out[0, c] += sign * (wrench[0, c] + r[1] * z - r[2] * y)
        out[1, c] += sign * (wrench[1, c] + r[2] * x - r[0] * z)
        out[2, c] += sign * (wrench[2, c] + r[0] * y - r[1] * x)
        out[3, c] += sign * x
        out[4, c] += sign * y
        out[5, c] += sign * z


@njit(cache=True)
def _joint_wrench(parent, dof, l, k, row, K, tau, out):
    """Write the wrenches K_J^T n_J of the joint torques between link `l` and its next body, at o, into `out` (6, m)."""
    fill_matrix(out, 0.0)
    for s in row[:k]:
        for i in range(6):
            for c in range(tau.shape[1]):
                out[i, c] += K[s, i] * tau[dof[l], c]
        l = parent[l]


@njit(cache=True)
def _applied_forces(parent, joint, dof, origin, com, parts, joints, tau, t):
    """Write t_i of (28), as corrected above and without b_i, into `t` (n, 6, m), from the forces `tau` (n_dof, m)."""
    wrench = np.empty((6, tau.shape[1]))
    r = np.empty(3)
    for i in range(len(t)):
        fill_matrix(t[i], 0.0)
    for i in range(len(parts.link)):
        u, l, k = parts.up[i], parts.link[i], parts.soft[i]
        if u == FLOATING:
            start = 0 if joint[l] == FREE else 3
            fill_matrix(wrench, 0.0)
            for e in range(start, 6):
                for c in range(tau.shape[1]):
                    wrench[e, c] = tau[dof[l] + e - start, c]
            for e in range(3):
                r[e] = origin[l, e] - com[l, e]
            _add_wrench(r, wrench, 1.0, t[i])
        elif k > 0:
            _joint_wrench(parent, dof, l, k, joints.row[i], joints.K[i], tau, wrench)
            _add_wrench(joints.arm[i, OWN], wrench, 1.0, t[i])
            if u >= 0:
                _add_wrench(joints.arm[i, UP], wrench, -1.0, t[u])


@njit(cache=True)
def _gyroscopic_forces(inertia, parts, w, t):
    """Subtract b_i = (omega x I omega; 0) from `t` (n, 6, 1)."""
    momentum = np.empty(3)
    for i in range(len(parts.link)):
        l = parts.link[i]
        for e in range(3):
            momentum[e] = inertia[l, e, 0] * w[l, 0] + inertia[l, e, 1] * w[l, 1] + inertia[l, e, 2] * w[l, 2]
        add_cross(w[l], momentum, -parts.share[i], t[i, :3, 0])


@njit(cache=True)
def _return_lent_forces(parts, lent, h, t):
    """Add L h to the torque on body u, `t` (n, 6, 1), where joint i lent body i the inertia L of body u.

    The constraint torque of joint i then holds L omega'_i as well, which is L omega'_u + L h on the other side.
    """
    for i in range(len(parts.link)):
        u = parts.up[i]
        if parts.soft[i] > 0 and u >= 0:
            L = lent[parts.link[i]]
            for e in range(3):
                t[u, e, 0] += L[e, 0] * h[i, 0, 0] + L[e, 1] * h[i, 1, 0] + L[e, 2] * h[i, 2, 0]


@njit(cache=True)
def _add_centripetal(w, r, sign, turn, out):
    """Add sign w x (w x r) to `out` (3,); `turn` (3,) is scratch."""
    for e in range(3):
        turn[e] = 0.0
    add_cross(w, r, 1.0, turn)
    add_cross(w, turn, sign, out)


@njit(cache=True)
def _velocity_accelerations(parent, joint, dof, axis, origin, com, parts, w, v, h):
    """Write the relative acceleration at o that velocities alone cause into `h` (n, 6, 1).

    The part of r_C'' that neither body's theta'' nor q'' makes. Axes turn with the links that hold them: a revolute one
    adds omega x axis q' to the angular acceleration, a sliding one twice that to the linear one; offsets between
    origins add omega x (omega x r).
    """
    r, g, turn = np.empty(3), np.empty(3), np.empty(3)
    for i in range(len(parts.link)):
        fill_matrix(h[i], 0.0)
        l = parts.link[i]
        if parts.soft[i] == 0:
            continue
        angular, linear = h[i, :3, 0], h[i, 3:, 0]
        o = origin[l]
        for e in range(3):
            r[e] = o[e] - com[l, e]
        _add_centripetal(w[l], r, -1.0, turn, linear)
        for _ in range(parts.soft[i]):
            up = parent[l]
            for e in range(3):
                r[e] = origin[l, e] - com[up, e]  # a massless link has its centre at its origin
            _add_centripetal(w[up], r, 1.0, turn, linear)
            for e in range(3):
                g[e] = 0.0
            add_cross(w[up], axis[l], v[dof[l]], g)
            for e in range(3):
                r[e] = o[e] - origin[l, e]
                if joint[l] == PRISMATIC:
                    linear[e] += 2.0 * g[e]
                else:
                    angular[e] += g[e]
            if joint[l] != PRISMATIC:
                add_cross(g, r, 1.0, linear)
            l = up


# ---------------------------------------------------------------------- paths 1 and 2, vectors


@njit(cache=True)
def _accelerate_body(mobility, lightness, t, x):
    """Write A^-1 t into `x`; both (6, m)."""
    for c in range(t.shape[1]):
        for e in range(3):
            x[e, c] = mobility[e, 0] * t[0, c] + mobility[e, 1] * t[1, c] + mobility[e, 2] * t[2, c]
            x[3 + e, c] = lightness * t[3 + e, c]


@njit(cache=True)
def _accelerate_bodies(joints, t, x):
    """Write A_i^-1 t_i, (48) solved for all bodies, into `x`; both (n, 6, m)."""
    for i in range(len(t)):
        _accelerate_body(joints.mobility[i], joints.lightness[i], t[i], x[i])


@njit(cache=True)
def _add_motion(r, x, sign, out):
    """Add sign times the motion `x` (6, m) of a body, at a point `r` away from its centre of mass, to `out` (6, m)."""
    for c in range(x.shape[1]):
        out[0, c] += sign * x[0, c]
        out[1, c] += sign * x[1, c]
        out[2, c] += sign * x[2, c]
        out[3, c] += sign * (x[3, c] + x[1, c] * r[2] - x[2, c] * r[1])
        out[4, c] += sign * (x[4, c] + x[2, c] * r[0] - x[0, c] * r[2])
        out[5, c] += sign * (x[5, c] + x[0, c] * r[1] - x[1, c] * r[0])


@njit(cache=True)
def _subtract(x, out):
    """Subtract `x` from `out`; both (6, m)."""
    for e in range(6):
        for c in range(x.shape[1]):
            out[e, c] -= x[e, c]


@njit(cache=True)
def _multiply(A, rows, inner, x, out):
    """Write A x into `out`; A is (rows, inner), x (inner, m), out (rows, m)."""
    for i in range(rows):
        for c in range(x.shape[1]):
            value = 0.0
            for e in range(inner):
                value += A[i, e] * x[e, c]
            out[i, c] = value


@njit(cache=True)
def _add_constraint(joints, i, side, n, sign, wrench, out):
    """Add sign H^T n of joint i, the constraint force `n` (rows, m) seen by the body on `side`, to `out` (6, m).

    `wrench` (6, m) is scratch.
    """
    K = joints.K[i]
    for e in range(6):
        for c in range(n.shape[1]):
            value = 0.0
            for s in range(joints.rows[i]):
                value += K[s, e] * n[s, c]
            wrench[e, c] = value
    _add_wrench(joints.arm[i, side], wrench, sign, out)


@njit(cache=True)
def _subtract_coupling(joints, i, j, k, n, work, out):
    """Subtract H_ki A_i^-1 H_ji^T n from `out` (rows, m): what force `n` of joint j on part i does at its joint k.

    `work` (3, 6, m) is scratch.
    """
    wrench, force, motion = work[0], work[1], work[2]
    fill_matrix(force, 0.0)
    _add_constraint(joints, j, UP, n, 1.0, wrench, force)
    _accelerate_body(joints.mobility[i], joints.lightness[i], force, motion)
    fill_matrix(force, 0.0)
    _add_motion(joints.arm[k, UP], motion, -1.0, force)
    for s in range(joints.rows[k]):
        for e in range(6):
            for c in range(out.shape[1]):
                out[s, c] += joints.K[k, s, e] * force[e, c]


@njit(cache=True)
def _solve_pair(joints, i, first, second, x, work):
    """Replace right-hand sides by forces at the joints that part i carries: n_1 and n_2, in `x` (n, 6, m).

    (40) for joint 1, then for joint 2, then (35) for joint 1 again. `work` (4, 6, m) is scratch.
    """
    if first >= 0:
        m = joints.rows[first]
        if second >= 0:
            copy_matrix(x[first], work[3])
        _multiply(joints.M[first], m, m, x[first], work[0])
        copy_matrix(work[0], x[first])
    if second >= 0:
        n = joints.rows[second]
        if first >= 0:
            _subtract_coupling(joints, i, first, second, x[first], work[:3], x[second])
        _multiply(joints.M[second], n, n, x[second], work[0])
        copy_matrix(work[0], x[second])
        if first >= 0:
            m = joints.rows[first]
            _subtract_coupling(joints, i, second, first, x[second], work[:3], work[3])
            _multiply(joints.M[first], m, m, work[3], x[first])


@njit(cache=True)
def _path_1(parts, joints, t, free, h, total, n):
    """Write the constraint force of every joint before the joints towards the root exist, `n` (n_parts, 6, m), (40).

    The right-hand side a_i - sum S_ij n_j is the relative acceleration that remains to be corrected at joint i: that of
    velocities, h, and of the forces on both bodies, those of the joints j included. Where a joint inertia yields, what
    the forces found before, `total`, already account for is not corrected again. `free` holds A^-1 t; all are
    (n_parts, 6, m).
    """
    work = np.empty((4, 6, n.shape[2]))
    net, relative = np.empty((6, n.shape[2])), np.empty((6, n.shape[2]))
    for i in range(len(n)):
        fill_matrix(n[i], 0.0)
    for i in range(len(parts.link) - 1, -1, -1):
        first, second = parts.down[i, 0], parts.down[i, 1]
        _solve_pair(joints, i, first, second, n, work)
        u = parts.up[i]
        if u == FLOATING:
            continue
        copy_matrix(t[i], net)
        for j in (first, second):
            if j >= 0:
                _add_constraint(joints, j, UP, n[j], -1.0, work[0], net)
        _accelerate_body(joints.mobility[i], joints.lightness[i], net, work[0])
        copy_matrix(h[i], relative)
        _add_motion(joints.arm[i, OWN], work[0], -1.0, relative)
        if u >= 0:
            _add_motion(joints.arm[i, UP], free[u], 1.0, relative)
        _multiply(joints.K[i], joints.rows[i], 6, relative, n[i])
        for s in range(6 - parts.soft[i], joints.rows[i]):
            for c in range(n.shape[2]):
                n[i, s, c] -= joints.compliance[i, s] * total[i, s, c]
        if u == GROUND:
            _multiply(joints.M[i], joints.rows[i], joints.rows[i], n[i], work[0])
            copy_matrix(work[0], n[i])


@njit(cache=True)
def _path_2(parts, joints, change, n):
    """Turn `n` (n_parts, 6, m) into the constraint forces of the whole system, from the roots to the tips (47).

    `change` (n_parts, 6, m) is scratch: S_ij^T n_i, then what follows from it for n_j.
    """
    work = np.empty((4, 6, n.shape[2]))
    force, motion = np.empty((6, n.shape[2])), np.empty((6, n.shape[2]))
    for i in range(len(parts.link)):
        first, second = parts.down[i, 0], parts.down[i, 1]
        if parts.up[i] == FLOATING or (first < 0 and second < 0):
            continue
        fill_matrix(force, 0.0)
        _add_constraint(joints, i, OWN, n[i], -1.0, work[0], force)
        _accelerate_body(joints.mobility[i], joints.lightness[i], force, motion)
        for j in (first, second):
            if j >= 0:
                fill_matrix(force, 0.0)
                _add_motion(joints.arm[j, UP], motion, 1.0, force)
                fill_matrix(change[j], 0.0)
                _multiply(joints.K[j], joints.rows[j], 6, force, change[j])
        _solve_pair(joints, i, first, second, change, work)
        for j in (first, second):
            if j >= 0:
                _subtract(change[j], n[j])


@njit(cache=True)
def _add_constraints(parts, joints, n, t):
    """Add the constraint forces H_ii^T n_i - sum H_ji^T n_j to `t` (n_parts, 6, m), the right-hand side of (48)."""
    wrench = np.empty((6, n.shape[2]))
    for i in range(len(parts.link)):
        if joints.rows[i] > 0:
            _add_constraint(joints, i, OWN, n[i], 1.0, wrench, t[i])
            if parts.up[i] >= 0:
                _add_constraint(joints, i, UP, n[i], -1.0, wrench, t[parts.up[i]])


@njit(cache=True)
def _joint_accelerations(parent, joint, dof, origin, com, parts, joints, x, h, q):
    """Write q'' = K_J (r_C'' - h) (49) into `q` (n_dof, m), from body accelerations `x`; bases have their own.

    `x` and `h` are (n_parts, 6, m).
    """
    r = np.empty(3)
    relative = np.empty((6, q.shape[1]))
    for i in range(len(parts.link)):
        u, l = parts.up[i], parts.link[i]
        if u == FLOATING:
            for e in range(3):
                r[e] = origin[l, e] - com[l, e]
            fill_matrix(relative, 0.0)
            _add_motion(r, x[i], 1.0, relative)
            start = 0 if joint[l] == FREE else 3
            for e in range(start, 6):
                for c in range(q.shape[1]):
                    q[dof[l] + e - start, c] = relative[e, c]
        elif parts.soft[i] > 0:
            fill_matrix(relative, 0.0)
            _subtract(h[i], relative)
            _add_motion(joints.arm[i, OWN], x[i], 1.0, relative)
            if u >= 0:
                _add_motion(joints.arm[i, UP], x[u], -1.0, relative)
            for s in joints.row[i, : parts.soft[i]]:
                _multiply(joints.K[i, s : s + 1], 1, 6, relative, q[dof[l] : dof[l] + 1])
                l = parent[l]


@njit(cache=True)
def _base_velocity_terms(joint, dof, origin, com, parts, w, q):
    """Add omega x (omega x r) to the accelerations of the base origins, which are not the centres of mass."""
    r, turn = np.empty(3), np.empty(3)
    for i in range(len(parts.link)):
        l = parts.link[i]
        if parts.up[i] == FLOATING and joint[l] == FREE:
            for e in range(3):
                r[e] = origin[l, e] - com[l, e]
            _add_centripetal(w[l], r, 1.0, turn, q[dof[l] + 3 : dof[l] + 6])


@njit(cache=True)
def _constraint_wrenches(parent, joint, dof, axis, origin, parts, joints, n, tau, out):
    """Write the constraint wrench at every link, `out` (n_links, 6): the joint's whole wrench less the own torque.

    The own torque is that of tau and of the joint inertia.
    """
    total = np.empty((6, 1))
    out[:] = 0.0
    for i in range(len(parts.link)):
        l, k = parts.link[i], parts.soft[i]
        if k == 0:
            continue
        o = origin[l]
        _joint_wrench(parent, dof, l, k, joints.row[i], joints.K[i], tau, total)
        for s in range(joints.rows[i]):
            for e in range(6):
                total[e, 0] += joints.K[i, s, e] * n[i, s, 0]
        for s in joints.row[i, :k]:
            own = tau[dof[l], 0] + (n[i, s, 0] if s < joints.rows[i] else 0.0)
            x, y, z = o[0] - origin[l, 0], o[1] - origin[l, 1], o[2] - origin[l, 2]
            out[l, 0] = total[0, 0] + y * total[5, 0] - z * total[4, 0]
            out[l, 1] = total[1, 0] + z * total[3, 0] - x * total[5, 0]
            out[l, 2] = total[2, 0] + x * total[4, 0] - y * total[3, 0]
            for e in range(3):
                out[l, 3 + e] = total[3 + e, 0]
            for e in range(3):
                out[l, (3 if joint[l] == PRISMATIC else 0) + e] -= own * axis[l, e]
            l = parent[l]


@njit(cache=True)
def _return_lent_wrenches(parent, parts, lent, x, out):
    """Take L omega'_i, the force that moves the inertia lent through joint i, off its torque in `out` (n_links, 6)."""
    for i in range(len(parts.link)):
        l = parts.link[i]
        L = lent[l]
        for _ in range(parts.soft[i]):
            for e in range(3):
                out[l, e] -= L[e, 0] * x[i, 0, 0] + L[e, 1] * x[i, 1, 0] + L[e, 2] * x[i, 2, 0]
            l = parent[l]


@njit(cache=True)
def _accelerate(parent, joint, dof, origin, com, parts, joints, rounds, work, q):
    """Write q'' (n_dof, m), by both paths.

    `work` (5, n_parts, 6, m) holds t and h on entry; on return also the accelerations of the bodies and the sum of all
    constraint forces, in its third and last part.

    Both paths are run `rounds` times. Large joint torques accelerate light free bodies by much more than the joined
    ones move, and constraint forces take it back; the second round starts from bodies that already feel them, and finds
    what rounding has left.
    """
    t, h, x, n, total = work[0], work[1], work[2], work[3], work[4]
    for i in range(len(total)):
        fill_matrix(total[i], 0.0)
    for _ in range(rounds):  # an argument: a constant would be unrolled, and take twice as long to compile
        _accelerate_bodies(joints, t, x)
        _path_1(parts, joints, t, x, h, total, n)
        _path_2(parts, joints, x, n)
        _add_constraints(parts, joints, n, t)
        for i in range(len(n)):
            for e in range(6):
                for c in range(n.shape[2]):
                    total[i, e, c] += n[i, e, c]
    _accelerate_bodies(joints, t, x)
    _joint_accelerations(parent, joint, dof, origin, com, parts, joints, x, h, q)


@njit(cache=True)
def _load_at_rest(parent, joint, dof, origin, com, parts, joints, b, work):
    """Write t and h of bodies at rest under the generalised forces b (n_dof, m) into `work`, see `_accelerate`."""
    _applied_forces(parent, joint, dof, origin, com, parts, joints, b, work[0])
    for i in range(len(parts.link)):
        fill_matrix(work[1, i], 0.0)


@njit(cache=True)
def _load_moving(parent, joint, dof, axis, origin, com, inertia, parts, joints, lent, lends, v, tau, w, work):
    """Write t and h for velocities `v` (n_dof,) and forces `tau` (n_dof, 1) into `work`, see `_accelerate`.

    `w` (n_links, 3): angular velocities, written.
    """
    t, h = work[0], work[1]
    link_twists(parent, joint, dof, axis, origin, v, w, np.empty((len(parent), 3)))
    _applied_forces(parent, joint, dof, origin, com, parts, joints, tau, t)
    _gyroscopic_forces(inertia, parts, w, t)
    _velocity_accelerations(parent, joint, dof, axis, origin, com, parts, w, v, h)
    if lends:
        _return_lent_forces(parts, lent, h, t)


# ---------------------------------------------------------------------- the solver


class VirtualWorkFactor(ReusableFactor):
    """The eliminated system of constraint forces of one tree in one configuration."""

    def __init__(self, tree: TreeModel):
        links, parts = tree.empty_links(), split_links(tree)
        self._topology = (tree.parent, tree.joint, tree.dof)
        self._placed = (links.R, links.p, links.axis, links.com, links.inertia)
        self._links, self._parts = links, parts
        self._bodies = list_bodies(tree)
        self._joints = empty_joints(tree, parts)
        self._placed_joints = (*self._topology, links.p, links.com, parts, self._joints)
        self._log_det, self._lends = 0.0, False
        self._one_column = np.empty((5, len(parts.link), 6, 1))

    def refactor(self, tree: TreeModel, state: State) -> None:
        tree.check_state(state)
        self._log_det, singular, self._lends = eliminate_joints(
            tree.link_arrays, (state.base_position, state.base_rotation, state.q), self._placed, self._bodies,
            self._parts, self._joints,
        )  # fmt: skip
        if singular >= 0:
            raise_unfit("virtual-work", tree, state, singular)

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return M^-1 b: the accelerations from rest under the generalised forces b."""
        work, q = self._work(b.shape[1]), np.empty(b.shape)
        _load_at_rest(*self._placed_joints, b, work)
        _accelerate(*self._placed_joints, ROUNDS, work, q)
        return q

    def log_det(self) -> float:
        """Return ln det M, by Fixman's theorem."""
        return self._log_det

    def accelerations(self, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the accelerations (n_dof,) for generalised velocities and forces (n_dof,)."""
        return self._accelerate(v, tau)[:, 0]

    def constraint_wrenches(self, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return the constraint wrench at every joint, (n_links, 6), for velocities and forces (n_dof,)."""
        self._accelerate(v, tau)
        _, _, x, _, total = self._one_column
        wrenches = np.empty((len(self._links.p), 6))
        _constraint_wrenches(
            *self._topology, self._links.axis, self._links.p, self._parts, self._joints, total, tau[:, None], wrenches
        )
        if self._lends:
            _return_lent_wrenches(self._topology[0], self._parts, self._bodies.lent, x, wrenches)
        return wrenches

    def _accelerate(self, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        links, q, w = self._links, np.empty((len(tau), 1)), np.empty((len(self._links.p), 3))
        _load_moving(
            *self._topology, links.axis, links.p, links.com, links.inertia, self._parts, self._joints,
            self._bodies.lent, self._lends, v, tau[:, None], w, self._one_column,
        )  # fmt: skip
        _accelerate(*self._placed_joints, ROUNDS, self._one_column, q)
        _, joint, dof = self._topology
        _base_velocity_terms(joint, dof, links.p, links.com, self._parts, w, q[:, 0])
        return q

    def _work(self, m: int) -> np.ndarray:
        return self._one_column if m == 1 else np.empty((5, len(self._parts.link), 6, m))


class VirtualWorkSolver(ReusingSolver[VirtualWorkFactor]):
    """Constraint forces of all joints by the principle of virtual work, from tips to roots and back (48)-(53).

    Welded and free bases, sliding joints and joints of several coordinates are covered. Every body needs an invertible
    inertia of its own; a body whose masses lie on one line is lent some by its neighbours, which leaves M as it is.
    """

    name = "virtual-work"
    paper = "K. Yamane & Y. Nakamura, O(N) forward dynamics of open kinematic chains by the principle of virtual work"
    takes_joint_inertia = True
    inverts_bodies = True
    pool = FactorPool(VirtualWorkFactor)

    def constraint_forces(self, tree: TreeModel, state: State, velocities: Any, tau: Any) -> np.ndarray:
        """Return the constraint wrench at every joint, (n_links, 6).

        Row l is the wrench that the parent exerts on link l through the constraint of their joint, in world axes: the
        torque about the joint point (the origin of link l, on its axis), kJ/mol, then the force, kJ/mol/nm. It does no
        work along the joint's own coordinate. Roots, which no constraint holds, and a welded base have zeros.

        The generalised forces `tau` act as torques (forces, if sliding) between parent and link along the joint's axis
        and as an external wrench on the base. Forces on atoms, given as tau = J^T F, therefore move the system as they
        should, but the constraint wrenches are those of the equivalent joint torques. The force of a joint inertia acts
        along the joint's axis as well, and is no part of the constraint wrench. Masses of atoms that lie on an axis are
        divided between two bodies as `TreeModel` says, and so is the force that moves them.

        Parameters
        ----------
        tree : TreeModel
        state : State
        velocities, tau : (n_dof,)
        """
        v = tree.check_dof_vector("velocities", velocities)
        t = tree.check_dof_vector("tau", tau)
        return self._finite(self._ask(tree, state, lambda factor: factor.constraint_wrenches(v, t)))
