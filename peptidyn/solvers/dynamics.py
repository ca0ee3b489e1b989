"""Inverse dynamics, bias forces and kinetic energy: O(n), beside the solvers and shared by them.

Recursive Newton-Euler in world axes, every link about its own origin p:

    base to tip   w, u (angular velocity, velocity of p) and their derivatives dw, du
    each link     f = m (acceleration of the centre of mass),  n = I dw + w x I w + (c - p) x f
    tip to base   f_parent += f,  n_parent += n + (p - p_parent) x f,  tau = axis . n  or  axis . f

Because p lies on the joint axis, it moves with the parent for a revolute joint and slides along the axis for a
prismatic one, which brings the Coriolis term 2 w x axis rate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.core.jit import njit
from peptidyn.model.kinematics import FREE, POINT, PRISMATIC, link_twists, project_wrenches
from peptidyn.model.state import State
from peptidyn.model.tree import Links, TreeModel
from peptidyn.solvers.spatial_algebra import add_cross


@njit(cache=True)
def _link_accelerations(parent, joint, dof, axis, p, v, acc, w, dw, du):
    """Write the angular acceleration `dw` and the acceleration `du` of the origin of every link, (n_links, 3)."""
    r = np.empty(3)
    t = np.empty(3)
    for l in range(len(parent)):
        up = parent[l]
        if up < 0:
            k = dof[l]
            for i in range(3):
                dw[l, i] = acc[k + i] if joint[l] == FREE else 0.0
                du[l, i] = acc[k + 3 + i] if joint[l] == FREE else (acc[k + i] if joint[l] == POINT else 0.0)
            continue
        for i in range(3):
            r[i] = p[l, i] - p[up, i]
            du[l, i] = du[up, i]
            dw[l, i] = dw[up, i]
            t[i] = 0.0
        add_cross(dw[up], r, 1.0, du[l])
        add_cross(w[up], r, 1.0, t)
        add_cross(w[up], t, 1.0, du[l])
        rate, change = v[dof[l]], acc[dof[l]]
        if joint[l] == PRISMATIC:
            for i in range(3):
                du[l, i] += axis[l, i] * change
            add_cross(w[up], axis[l], 2.0 * rate, du[l])
        else:
            for i in range(3):
                dw[l, i] += axis[l, i] * change
            add_cross(w[up], axis[l], rate, dw[l])


@njit(cache=True)
def _link_wrenches(mass, com, inertia, p, w, dw, du, torque, force):
    """Write the force and the torque about its origin that move every link."""
    r = np.empty(3)
    t = np.empty(3)
    for l in range(len(mass)):
        for i in range(3):
            r[i] = com[l, i] - p[l, i]
            force[l, i] = du[l, i]
            torque[l, i] = 0.0
            t[i] = 0.0
        add_cross(dw[l], r, 1.0, force[l])
        add_cross(w[l], r, 1.0, t)
        add_cross(w[l], t, 1.0, force[l])
        for i in range(3):
            force[l, i] *= mass[l]
            t[i] = inertia[l, i, 0] * w[l, 0] + inertia[l, i, 1] * w[l, 1] + inertia[l, i, 2] * w[l, 2]
            torque[l, i] = inertia[l, i, 0] * dw[l, 0] + inertia[l, i, 1] * dw[l, 1] + inertia[l, i, 2] * dw[l, 2]
        add_cross(w[l], t, 1.0, torque[l])
        add_cross(r, force[l], 1.0, torque[l])


@njit(cache=True)
def _inverse_dynamics(parent, joint, dof, axis, p, mass, com, inertia, v, acc, scratch, tau):
    """Write M acc + c into `tau` (n_dof,); `scratch` is (6, n_links, 3)."""
    w, u, dw, du, torque, force = scratch
    link_twists(parent, joint, dof, axis, p, v, w, u)
    _link_accelerations(parent, joint, dof, axis, p, v, acc, w, dw, du)
    _link_wrenches(mass, com, inertia, p, w, dw, du, torque, force)
    project_wrenches(parent, joint, dof, axis, p, torque, force, tau)


def inverse_dynamics(tree: TreeModel, state: State, velocities: Any, accelerations: Any) -> np.ndarray:
    """Return the generalised forces (n_dof,) that give the accelerations: M a + c; O(n).

    Parameters
    ----------
    tree : TreeModel
    state : State
    velocities : (n_dof,)
    accelerations : (n_dof,)
        Time derivatives of the velocities.
    """
    v = tree.check_dof_vector("velocities", velocities)
    a = tree.check_dof_vector("accelerations", accelerations)
    tau = _link_forces(tree.parent, tree.joint, tree.dof, tree.links(state), v, a)
    tau[tree.coordinate_dof] += tree.joint_inertia * a[tree.coordinate_dof]
    return tau


def inertia_of_links(tree: TreeModel) -> np.ndarray:
    """Return the joint inertia of the coordinate of every link (n_links,), zero for roots."""
    inner = tree.parent >= 0
    inertia = np.zeros(tree.n_links)
    inertia[inner] = tree.joint_inertia[tree.coordinate[inner]]
    return inertia


def bias_forces(tree: TreeModel, state: State, velocities: Any) -> np.ndarray:
    """Return the velocity-dependent generalised forces c (n_dof,) in M a + c = tau; O(n)."""
    v = tree.check_dof_vector("velocities", velocities)
    return link_bias_forces(tree.parent, tree.joint, tree.dof, tree.links(state), v)


def link_bias_forces(parent: np.ndarray, joint: np.ndarray, dof: np.ndarray, links: Links, v: np.ndarray) -> np.ndarray:
    """Return what `bias_forces` does, for links that are placed already and velocities `v` that are checked."""
    return _link_forces(parent, joint, dof, links, v, np.zeros(len(v)))


def _link_forces(
    parent: np.ndarray, joint: np.ndarray, dof: np.ndarray, links: Links, v: np.ndarray, a: np.ndarray
) -> np.ndarray:
    tau = np.empty(len(v))
    _inverse_dynamics(
        parent, joint, dof, links.axis, links.p, links.mass, links.com, links.inertia, v, a,
        np.empty((6, len(parent), 3)), tau,
    )  # fmt: skip
    return tau


def kinetic_energy(tree: TreeModel, state: State, velocities: Any) -> float:
    """Return the kinetic energy v M v / 2, kJ/mol (Da nm^2/ps^2); O(n).

    Parameters
    ----------
    tree : TreeModel
    state : State
    velocities : (n_dof,)
        rad/ps, and nm/ps for the translations of bases.
    """
    v = tree.check_dof_vector("velocities", velocities)
    links = tree.links(state)
    w, u = np.empty((2, tree.n_links, 3))
    link_twists(tree.parent, tree.joint, tree.dof, links.axis, links.p, v, w, u)
    at_com = u + np.cross(w, links.com - links.p)
    spin = np.einsum("li,lij,lj->", w, links.inertia, w)
    joints = tree.joint_inertia @ v[tree.coordinate_dof] ** 2
    return float(0.5 * (links.mass @ (at_com * at_com).sum(axis=1) + spin + joints))
