"""Eqs. (15) and (21)-(28) of paper 000: against their definitions, finite differences and the printed matrices."""

import dh_oracle
import numpy as np
import pytest
from dh_oracle import SE3_BASIS
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm

from peptidyn.core.errors import ArgumentError
from peptidyn.model import dh
from peptidyn.solvers.lie_rows import lie_rows

DEG = np.pi / 180.0


def random_coordinates(rng, n, margin=0.2):
    """Coordinates of n joints, `margin` (rad) away from the singularity at cos(alpha) = 0."""
    q = rng.uniform(-3.1, 3.1, (n, 6))
    q[:, 0] = rng.uniform(margin - np.pi / 2, np.pi / 2 - margin, n)
    return q


def random_poses(rng, n):
    return dh.transform(random_coordinates(rng, n))


def random_joints(rng, n):
    """Q_{k-1}, T_{k-1}^c, T_k^c, Q_k of n joints with regular coordinates."""
    Q_prev, Tc_prev, Q = random_poses(rng, n), random_poses(rng, n), random_poses(rng, n)
    T = dh.transform(random_coordinates(rng, n))
    return Q_prev, Tc_prev, Tc_prev @ np.linalg.inv(Q_prev) @ T @ Q, Q


def wrapped(angle):
    return np.angle(np.exp(1j * angle))


# ---------------------------------------------------------------------- transforms


def test_screw_is_the_exponential_of_its_twist():
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = rng.normal(size=3)
        n /= np.linalg.norm(n)
        d, theta = rng.normal(), rng.uniform(-3, 3)
        twist = np.concatenate([theta * n, d * n])
        expected = expm(np.einsum("i,ijk->jk", twist, SE3_BASIS))
        np.testing.assert_allclose(dh.screw(n, d, theta), expected, atol=1e-14)


def test_screw_takes_distance_before_angle():
    T = dh.screw([0.0, 0.0, 1.0], 2.0, np.pi / 2)
    np.testing.assert_allclose(T, [[0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 2], [0, 0, 0, 1]], atol=1e-16)


def test_se3_basis_is_the_papers():
    twist = np.arange(1.0, 7.0)
    expected = [[0, -3, 2, 4], [3, 0, -1, 5], [-2, 1, 0, 6], [0, 0, 0, 0]]
    np.testing.assert_array_equal(np.einsum("i,ijk->jk", twist, SE3_BASIS), expected)


def test_four_parameters_are_eq_23():
    beta, b, c, gamma = np.random.default_rng(1).uniform(-3, 3, (4, 30))
    (cb, cg), (sb, sg), zero, one = np.cos([beta, gamma]), np.sin([beta, gamma]), np.zeros(30), np.ones(30)
    expected = [
        [cg, -sg, zero, b],
        [sg * cb, cg * cb, -sb, -c * sb],
        [sg * sb, cg * sb, cb, c * cb],
        [zero, zero, zero, one],
    ]
    np.testing.assert_allclose(dh.dh_transform(beta, b, c, gamma), np.moveaxis(expected, -1, 0), atol=1e-15)


def test_six_parameters_reduce_to_four():
    q = np.random.default_rng(2).uniform(-3, 3, (30, 6))
    q[:, [0, 3]] = 0.0
    _, beta, gamma, _, b, c = q.T
    np.testing.assert_allclose(dh.transform(q), dh.dh_transform(beta, b, c, gamma), atol=1e-15)


def test_form_c_is_eq_27():
    q = np.array([0.4, -1.9, 2.3, 0.7, -0.2, 1.3])
    a, b, c = q[3:]
    (ca, cb, cg), (sa, sb, sg) = np.cos(q[:3]), np.sin(q[:3])
    expected = [
        [ca * cg, -ca * sg, sa, b + c * sa],
        [sb * sa * cg + cb * sg, cb * cg - sb * sa * sg, -sb * ca, a * cb - c * sb * ca],
        [-cb * sa * cg + sb * sg, sb * cg + cb * sa * sg, cb * ca, a * sb + c * cb * ca],
        [0, 0, 0, 1],
    ]
    np.testing.assert_allclose(dh.transform(q), expected, atol=1e-15)


def test_coordinates_invert_the_transform():
    q = random_coordinates(np.random.default_rng(3), 500, margin=1e-3)
    np.testing.assert_allclose(dh_oracle.coordinates(dh.transform(q)), q, atol=5e-12)


@given(
    alpha=st.floats(-1.55, 1.55),
    angles=st.tuples(*[st.floats(-3.14159, 3.14159)] * 2),
    lengths=st.tuples(*[st.floats(-10, 10)] * 3),
)
def test_form_c_round_trip(alpha, angles, lengths):
    q = np.array([alpha, *angles, *lengths])
    np.testing.assert_allclose(dh_oracle.coordinates(dh.transform(q)), q, rtol=0, atol=2e-11)


def test_leading_axes_and_single_transforms_agree():
    q = random_coordinates(np.random.default_rng(4), 6).reshape(2, 3, 6)
    T = dh.transform(q)
    assert T.shape == (2, 3, 4, 4)
    np.testing.assert_array_equal(T[1, 2], dh.transform(q[1, 2]))


def test_chain():
    T = random_poses(np.random.default_rng(5), 4)
    np.testing.assert_allclose(dh.chain_transforms(T)[-1], T[0] @ T[1] @ T[2] @ T[3], atol=1e-13)
    np.testing.assert_allclose(dh.chain_transforms(T, base=T[2])[0], T[2] @ T[0], atol=1e-14)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: dh.transform(np.zeros(5)), "q has shape"),
        (lambda: dh.screw([1.0, 1.0, 0.0], 0.0, 0.0), "unit vector"),
        (lambda: dh.chain_transforms(np.eye(4)), "one transform per joint"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


# ---------------------------------------------------------------------- derivatives


def test_jacobian_is_the_body_velocity_of_each_coordinate():
    h = 1e-5
    for q in random_coordinates(np.random.default_rng(6), 20):
        J, T = dh_oracle.jacobian(q), dh.transform(q)
        for i, step in enumerate(h * np.eye(6)):
            dT = (dh.transform(q + step) - dh.transform(q - step)) / (2 * h)
            expected = np.einsum("i,ijk->jk", J[:, i], SE3_BASIS)
            np.testing.assert_allclose(np.linalg.inv(T) @ dT, expected, rtol=0, atol=1e-8)


def test_jacobian_determinant_is_the_papers():
    q = np.random.default_rng(7).uniform(-3.1, 3.1, (200, 6))
    np.testing.assert_allclose(np.linalg.det(dh_oracle.jacobian(q)), np.cos(q[:, 0]) ** 2, atol=1e-13)


def test_eq_28_is_the_inverse_jacobian_of_eq_18():
    q = random_coordinates(np.random.default_rng(8), 100)
    T = dh.transform(q)
    rows = dh_oracle.coordinate_derivatives(T, T[:, None] @ SE3_BASIS)
    np.testing.assert_allclose(rows @ dh_oracle.jacobian(q), np.broadcast_to(np.eye(6), rows.shape), atol=1e-12)


def finite_differences(Q_prev, Tc_prev, Tc, Q, h=3e-4):
    """Fourth-order central differences on SE(3), eq. (16): dT (2, 6, 4, 4) and dq (2, 6, 6) for bodies k-1 and k."""
    start = dh_oracle.coordinates(dh_oracle.relative_transform(Q_prev, Tc_prev, Tc, Q))
    dT, dq = np.zeros((2, 6, 4, 4)), np.zeros((2, 6, 6))
    for i, E in enumerate(SE3_BASIS):
        for steps, weight in ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12)):
            motion = expm(steps * h * E)
            moved = (
                dh_oracle.relative_transform(Q_prev, Tc_prev @ motion, Tc, Q),
                dh_oracle.relative_transform(Q_prev, Tc_prev, Tc @ motion, Q),
            )
            for body, T in enumerate(moved):
                change = dh_oracle.coordinates(T) - start
                change[:3] = wrapped(change[:3])
                dT[body, i] += weight / h * T
                dq[body, :, i] += weight / h * change
    return dT, dq


def joints_of_molecules(rng, n):
    """Joints with alpha = a = c = 0 and a short b."""
    q = np.zeros((n, 6))
    q[:, 1:3] = rng.uniform(-3.1, 3.1, (n, 2))
    q[:, 4] = rng.uniform(0.1, 0.2, n)
    Q_prev, Tc_prev, Q = random_poses(rng, n), random_poses(rng, n), random_poses(rng, n)
    return Q_prev, Tc_prev, Tc_prev @ np.linalg.inv(Q_prev) @ dh.transform(q) @ Q, Q


@pytest.mark.parametrize("joints", [random_joints, joints_of_molecules])
def test_lie_derivatives_agree_with_finite_differences(joints):
    for joint in zip(*joints(np.random.default_rng(10), 30), strict=True):
        dT, dq = finite_differences(*joint)
        T = dh_oracle.relative_transform(*joint)
        for body, analytic in enumerate(dh_oracle.transform_derivatives(*joint)):
            np.testing.assert_allclose(analytic, dT[body], rtol=0, atol=1e-8)
            np.testing.assert_allclose(dh_oracle.coordinate_derivatives(T, analytic), dq[body], rtol=0, atol=1e-8)


def test_compiled_rows_equal_the_printed_formula():
    joints = random_joints(np.random.default_rng(12), 200)
    T = dh_oracle.relative_transform(*joints)
    expected = [dh_oracle.coordinate_derivatives(T, dT) for dT in dh_oracle.transform_derivatives(*joints)]
    for k, joint in enumerate(zip(*joints, strict=True)):
        before = [m.copy() for m in joint]
        blocks = np.full((2, 6, 6), np.nan)
        lie_rows(*joint, blocks[0], blocks[1])
        for body in range(2):
            np.testing.assert_allclose(blocks[body], expected[body][k], rtol=1e-10, atol=1e-10)
        for m, kept in zip(joint, before, strict=True):
            np.testing.assert_array_equal(m, kept)


def test_compiled_rows_give_the_same_bits_twice():
    joint = [m[0] for m in random_joints(np.random.default_rng(13), 1)]
    first, second = np.empty((2, 6, 6)), np.full((2, 6, 6), 7.0)
    lie_rows(*joint, first[0], first[1])
    lie_rows(*joint, second[0], second[1])
    np.testing.assert_array_equal(first, second)


def test_a_common_motion_of_both_bodies_changes_no_coordinate():
    Q_prev, Tc_prev, Tc, Q = (m[0] for m in random_joints(np.random.default_rng(14), 1))
    previous, own = np.empty((6, 6)), np.empty((6, 6))
    lie_rows(Q_prev, Tc_prev, Tc, Q, previous, own)
    between = np.linalg.inv(Tc) @ Tc_prev  # a twist of body k-1 in the frame of body k: between E between^-1
    for i, E in enumerate(SE3_BASIS):
        moved = between @ E @ np.linalg.inv(between)
        twist = np.array([moved[2, 1], moved[0, 2], moved[1, 0], *moved[:3, 3]])
        np.testing.assert_allclose(previous[:, i] + own @ twist, 0.0, atol=1e-12)


# ---------------------------------------------------------------------- printed frames of paper 000

PUMA = dict(
    beta=np.array([90, 0, -90, 90, -90, 0]) * DEG,
    b=np.array([0, 0.4318, 0.0191, 0, 0, 0]),
    c=np.array([0, 0, 0.1254, 0.4318, 0, 0]),
    gamma=np.full(6, 60 * DEG),
)
PUMA_COM = np.array([[0, 0.08, 0], [0.216, 0, -0.026], [0, -0.216, 0], [0, 0, -0.02], [0, 0, 0], [0, 0, 0.01]])
PUMA_PRINTED = np.array(
    [
        [[0.500, -0.866, 0, -0.069], [0, 0, -1, 0], [0.866, 0.5, 0, 0.04]],
        [[-0.5, -0.866, 0, 0.108], [0, 0, -1, 0.026], [0.866, -0.5, 0, 0.561]],
        [[-0.25, 0.433, -0.866, 0.004], [0.866, 0.5, 0, -0.108], [0.433, -0.75, -0.5, 0.490]],
        [[-0.875, -0.217, -0.433, -0.081], [0.433, -0.75, -0.5, -0.206], [-0.217, -0.625, 0.75, 0.637]],
        [[-0.063, 0.974, -0.217, -0.089], [0.650, -0.125, -0.75, -0.216], [-0.758, -0.188, -0.625, 0.652]],
        [[0.813, 0.541, -0.217, -0.091], [0.217, -0.625, -0.75, -0.223], [-0.541, 0.563, -0.625, 0.645]],
    ]
)

# The gamma of rows 4 and 7 is what the printed frames were made with; Table II prints 289.5 and 70.5 there.
PEPTIDE = dict(
    beta=np.array([0, 60, 60, 60, 60, 60, 60]) * DEG,
    b=np.array([0, 1.525, 1.329, 1.458, 1.525, 1.329, 1.458]),
    c=np.zeros(7),
    gamma=np.array([70.5, 296.2, 58.3, 190.5, 63.8, 301.7, 69.5]) * DEG,
)
CA, CO, NH = (-0.2846, -0.4026, 0.6339), (-0.3860, 0.5877, 0.0), (-0.0330, -0.0591, 0.0)
PEPTIDE_COM = np.array([CA, CO, NH, CA, CO, NH, CA])
PEPTIDE_PRINTED = np.array(
    [
        [[0.334, -0.943, 0, 0.285], [0.943, 0.334, 0, -0.403], [0, 0, 1, 0.634]],
        [[0.570, 0.091, 0.816, 0.343], [0.266, 0.920, -0.289, 1.875], [-0.777, 0.382, 0.5, 0.525]],
        [[0.940, -0.090, 0.329, 1.241], [0.318, -0.117, -0.941, 1.788], [0.123, 0.989, -0.081, -1.095]],
        [[-0.968, -0.065, 0.242, 3.093], [-0.154, 0.917, -0.369, 1.696], [-0.198, -0.395, -0.897, -1.207]],
        [[-0.268, 0.947, 0.177, 1.821], [0.056, 0.199, -0.978, 2.116], [-0.962, -0.253, -0.107, -0.933]],
        [[-0.674, 0.101, -0.732, 0.821], [0.666, -0.345, -0.662, 2.094], [-0.319, -0.933, 0.165, -2.368]],
        [[-0.782, 0.428, -0.453, -0.415], [-0.465, -0.885, -0.032, 3.535], [-0.415, 0.186, 0.891, -2.292]],
    ]
)


@pytest.mark.parametrize(
    "table, com, printed, atol",
    [
        pytest.param(PUMA, PUMA_COM, PUMA_PRINTED, 5.1e-4, id="puma"),
        # four entries were rounded twice (0.919482 -> 0.9195 -> 0.920)
        pytest.param(PEPTIDE, PEPTIDE_COM, PEPTIDE_PRINTED, 6e-4, id="polypeptide"),
    ],
)
def test_centre_of_mass_frames_are_the_printed_ones(table, com, printed, atol):
    Q = np.broadcast_to(np.eye(4), (len(com), 4, 4)).copy()
    Q[:, :3, 3] = com
    frames = dh.chain_transforms(dh.dh_transform(**table)) @ Q
    np.testing.assert_allclose(frames[:, :3], printed, rtol=0, atol=atol)
