"""`DHChain`: the arms and chains of Lee, Wang & Chirikjian, digit by digit, and chains with any soft coordinates."""

from __future__ import annotations

import numpy as np
import pytest
from dh_oracle import jacobian
from openmm import unit

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, SolverError
from peptidyn.model import dh
from peptidyn.solvers.dense import mass_matrix
from peptidyn.solvers.fixman_elimination import FixmanSolver, h_blocks
from peptidyn.solvers.protocol import get_solver, list_solvers

DEG = np.pi / 180.0
SOLVERS = [name for name in list_solvers() if name != "fixman-points"]  # that one knows atoms only


def printed(table: str, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of a printed table, and half a unit of the last printed digit of each."""
    words = table.split()
    half = [0.5 * 10.0 ** -len(word.partition(".")[2]) for word in words]
    return np.array(words, dtype=float).reshape(-1, width), np.reshape(half, (-1, width))


def assert_printed(found, table: str, slack: float = 1e-9):
    """Every entry rounds to what is printed; `slack` (relative) decides ties."""
    expected, half = printed(table, found.shape[-1])
    found = found.reshape(expected.shape)
    wrong = np.abs(found - expected) > half * (1 + slack) + 1e-12
    assert not wrong.any(), f"{found[wrong]} against {expected[wrong]}"


# ---------------------------------------------------------------------- the polypeptide of seven links

# Angstrom and amu, in frame k: mass, centre of mass, diagonal inertia of CA, C', N
MASS = np.array([15.03452, 28.0101, 15.01468])
COM = np.array([[-0.2846, -0.4026, 0.6339], [-0.3860, 0.5877, 0.0], [-0.0330, -0.0591, 0.0]])
INERTIA = np.array([[16.14391, 14.42106, 5.16587], [7.26277, 3.13319, 10.39607], [0.72868, 0.22668, 0.95542]])
KIND = np.array([0, 1, 2, 0, 1, 2, 0])


def polypeptide(beta=(0, 60, 60, 60, 60, 60, 60), soft="beta"):
    return ptd.DHChain(
        beta=np.array(beta) * DEG,
        b=[0.0, 1.525, 1.329, 1.458, 1.525, 1.329, 1.458],
        c=0.0,
        gamma=np.array([70.5, 296.2, 58.3, 190.5, 63.8, 301.7, 69.5]) * DEG,
        mass=MASS[KIND],
        com=COM[KIND],
        inertia=INERTIA[KIND],
        soft=soft,
    )


M_POLY = """
870.7768   54.2187  161.5036  234.8087 -176.7587   16.9382   -1.8702
 54.2187  434.7277   58.8923  157.5614  -93.0816  -41.1893  -10.7686
161.5036   58.8923  189.6189  103.2236  -79.4282   53.5038   20.2896
234.8087  157.5614  103.2236  163.9448 -113.3383  -13.8750  -10.3724
-176.7587 -93.0816  -79.4282 -113.3383   95.9587   13.0774   11.6638
 16.9382  -41.1893   53.5038  -13.8750   13.0774   63.0571   29.1266
 -1.8702  -10.7686   20.2896  -10.3724   11.6638   29.1266   23.1711
"""

M_POLY_INVERSE = """
 0.0025  0.0014  0.0016 -0.0047  0.0022 -0.0021 -0.0012
 0.0014  0.0049  0.0010 -0.0089 -0.0021  0.0026 -0.0047
 0.0016  0.0010  0.0194 -0.0078  0.0137 -0.0202 -0.0015
-0.0047 -0.0089 -0.0078  0.0536  0.0389  0.0064 -0.0013
 0.0022 -0.0021  0.0137  0.0389  0.0735 -0.0127 -0.0164
-0.0021  0.0026 -0.0202  0.0064 -0.0127  0.0629 -0.0510
-0.0012 -0.0047 -0.0015 -0.0013 -0.0164 -0.0510  0.1140
"""

# beta_3 = beta_6 = 180 degrees and hard, the other five soft: not in the paper; worked out from the definition of M
M_FIVE = """
873.438674  -35.620074   61.493667   -6.704472  10.678678
-35.620074  473.382060 -177.475172  139.603091  42.687325
 61.493667 -177.475172  146.394564 -112.708214 -16.965776
 -6.704472  139.603091 -112.708214  110.295986  18.059690
 10.678678   42.687325  -16.965776   18.059690  23.171107
"""

T_POLY = """
 0.334 -0.943  0      0.285   0.943  0.334  0     -0.403   0      0      1      0.634
 0.570  0.091  0.816  0.343   0.266  0.920 -0.289  1.875  -0.777  0.382  0.5    0.525
 0.940 -0.090  0.329  1.241   0.318 -0.117 -0.941  1.788   0.123  0.989 -0.081 -1.095
-0.968 -0.065  0.242  3.093  -0.154  0.917 -0.369  1.696  -0.198 -0.395 -0.897 -1.207
-0.268  0.947  0.177  1.821   0.056  0.199 -0.978  2.116  -0.962 -0.253 -0.107 -0.933
-0.674  0.101 -0.732  0.821   0.666 -0.345 -0.662  2.094  -0.319 -0.933  0.165 -2.368
-0.782  0.428 -0.453 -0.415  -0.465 -0.885 -0.032  3.535  -0.415  0.186  0.891 -2.292
"""


def test_frames_of_the_polypeptide():
    """Four entries of the print were rounded twice (0.919482, 0.9195, 0.920), hence 6e-4."""
    frames = polypeptide().com_frames[:, :3, :].reshape(7, 12)
    np.testing.assert_allclose(frames, printed(T_POLY, 12)[0], atol=6e-4)


def test_mass_matrix_of_the_polypeptide():
    chain = polypeptide()
    assert_printed(chain.mass_matrix(), M_POLY)
    assert chain.mass_matrix()[0, 0] == pytest.approx(870.7767761879, abs=1e-9)
    assert chain.mass_matrix()[5, 6] == pytest.approx(29.1265784246, abs=1e-9)


@pytest.mark.parametrize("name", SOLVERS)
def test_inverse_of_the_polypeptide(name):
    chain = polypeptide()
    inverse = chain.solve(np.eye(7), solver=name)
    assert_printed(inverse, M_POLY_INVERSE)
    np.testing.assert_allclose(inverse, np.linalg.inv(chain.mass_matrix()), atol=1e-13)
    assert chain.log_det(solver=name) == pytest.approx(np.linalg.slogdet(chain.mass_matrix())[1], abs=1e-12)


def test_blocks_of_the_polypeptide():
    """H11 - H12 H22^-1 H12^T and ln det G + ln det H22; H11 is tridiagonal, H22 has a band of two blocks of 5."""
    chain = polypeptide()
    H = h_blocks(chain.tree, chain.state)
    M = chain.mass_matrix()
    assert H.H22.shape == (35, 35)
    schur = H.H11 - H.H12 @ np.linalg.solve(H.H22, H.H12.T)
    np.testing.assert_allclose(schur, np.linalg.inv(M), atol=1e-13)
    assert H.log_det_G + np.linalg.slogdet(H.H22)[1] == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-12)
    assert H.log_det_G == pytest.approx(np.log(INERTIA[KIND]).sum() + 3 * np.log(MASS[KIND]).sum(), abs=1e-12)
    i, j = np.nonzero(H.H22)
    assert np.abs(i // 5 - j // 5).max() == 1
    i, j = np.nonzero(H.H11)
    assert np.abs(i - j).max() == 1


@pytest.mark.parametrize("name", SOLVERS)
def test_five_soft_torsions(name):
    """beta_3 and beta_6 hard, three ways: rigid joints, coordinates held, and rows of the full matrix left out."""
    beta = (0, 60, 180, 60, 60, 180, 60)
    five = polypeptide(beta, soft=["beta", "beta", (), "beta", "beta", "", "beta"])
    assert five.tree.n_bodies == 5
    assert_printed(five.mass_matrix(), M_FIVE)
    np.testing.assert_allclose(five.solve(np.eye(5), solver=name), np.linalg.inv(five.mass_matrix()), atol=1e-12)

    seven = polypeptide(beta)
    keep = np.array([0, 1, 3, 4, 6])
    np.testing.assert_allclose(seven.mass_matrix()[np.ix_(keep, keep)], five.mass_matrix(), atol=1e-11)
    held = FixmanSolver().constrained(seven.tree, seven.state, "beta3 beta6")
    np.testing.assert_array_equal(held.dof, keep)
    np.testing.assert_allclose(held.solve(np.eye(5)), five.solve(np.eye(5), solver=name), atol=1e-13)
    assert held.log_det() == pytest.approx(five.log_det(solver=name), abs=1e-11)


# ---------------------------------------------------------------------- PUMA 560

# m and kg. The printed matrices are those of the coordinates beta, at gamma = 60 degrees.
PUMA = dict(
    beta=np.array([90, 0, -90, 90, -90, 0]) * DEG,
    b=[0, 0.4318, 0.0191, 0, 0, 0],
    c=[0, 0, 0.1254, 0.4318, 0, 0],
    gamma=60 * DEG,
    mass=[12.0, 7.25237, 4.8, 1.18, 0.32, 0.13],
    com=[[0, 0.08, 0], [0.216, 0, -0.026], [0, -0.216, 0], [0, 0, -0.02], [0, 0, 0], [0, 0, 0.01]],
    inertia=[
        [0.8232, 0.9, 0.5],
        [0.1775589, 2.2969543, 2.4],
        [0.1904943, 0.06, 0.19],
        [0.0038354, 0.0038397, 0.004],
        [2.16e-4, 2.16e-4, 2.5e-4],
        [4.37e-4, 4.37e-4, 1e-4],
    ],
)

M_PUMA = """
 7.0719  3.6036  0.3138 -0.0723 -0.0004 -0.0002
 3.6036  2.8533  0.3379  0.0722 -0.0004 -0.0006
 0.3138  0.3379  0.3259  0.1446  0.0002 -0.0005
-0.0723  0.0722  0.1446  0.2883  0.0003 -0.0003
-0.0004 -0.0004  0.0002  0.0003  0.0007  0.0002
-0.0002 -0.0006 -0.0005 -0.0003  0.0002  0.0004
"""

M_PUMA_INVERSE = """
 0.4130 -0.5346  0.0655  0.2043 -0.0775 -0.3333
-0.5346  1.0959 -0.5659 -0.1247  0.4489  0.3780
 0.0655 -0.5659  4.537  -2.1106 -2.288   4.0852
 0.2043 -0.1247 -2.1106  4.6143 -2.0481  1.6933
-0.0775  0.4489 -2.288  -2.0481  1810.6 -908.69
-0.3333  0.3780  4.0852  1.6933 -908.69  2682.8
"""

T_PUMA = """
 0.500 -0.866  0     -0.069   0      0     -1      0       0.866  0.5    0      0.04
-0.5   -0.866  0      0.108   0      0     -1      0.026   0.866 -0.5    0      0.561
-0.25   0.433 -0.866  0.004   0.866  0.5    0     -0.108   0.433 -0.75  -0.5    0.490
-0.875 -0.217 -0.433 -0.081   0.433 -0.75  -0.5   -0.206  -0.217 -0.625  0.75   0.637
-0.063  0.974 -0.217 -0.089   0.650 -0.125 -0.75  -0.216  -0.758 -0.188 -0.625  0.652
 0.813  0.541 -0.217 -0.091   0.217 -0.625 -0.75  -0.223  -0.541  0.563 -0.625  0.645
"""


def test_puma():
    chain = ptd.DHChain(**PUMA)
    np.testing.assert_allclose(chain.com_frames[:, :3, :].reshape(6, 12), printed(T_PUMA, 12)[0], atol=6e-4)
    assert_printed(chain.mass_matrix(), M_PUMA)
    diagonal = [7.0719474256, 2.8533077604, 0.3258756254, 0.2882741862, 0.000666, 0.00045]
    np.testing.assert_allclose(np.diag(chain.mass_matrix()), diagonal, rtol=1e-9)


@pytest.mark.parametrize("name", SOLVERS)
def test_inverse_of_puma(name):
    chain = ptd.DHChain(**PUMA)
    inverse = chain.solve(np.eye(6), solver=name)
    assert_printed(inverse, M_PUMA_INVERSE)
    assert inverse[4, 4] == pytest.approx(1810.5697852535, rel=1e-10)
    assert inverse[5, 5] == pytest.approx(2682.774440229, rel=1e-10)
    assert chain.log_det(solver=name) == pytest.approx(np.linalg.slogdet(chain.mass_matrix())[1], abs=1e-11)


def test_puma_in_gamma():
    """In gamma the last two axes coincide, so that M_56 = M_66: the printed matrix cannot be that one."""
    chain = ptd.DHChain(**PUMA, soft="gamma")
    M = chain.mass_matrix()
    np.testing.assert_allclose(np.diag(M)[[0, 2, 3, 4]], [7.33721, 0.70238, 0.00467, 0.00035], atol=5e-6)
    assert M[0, 1] == pytest.approx(3.82543, abs=5e-6)
    assert M[4, 5] == pytest.approx(1e-4) and M[5, 5] == pytest.approx(1e-4)
    np.testing.assert_allclose(chain.solve(M), np.eye(6), atol=1e-9)


# ---------------------------------------------------------------------- any soft coordinates


def random_parts(n, rng):
    """D-H parameters and bodies of a random chain, alpha and a among them."""
    x = rng.normal(size=(n, 5, 3))
    x -= x.mean(axis=1, keepdims=True)
    names = dict(zip(("beta", "gamma", "a", "b", "c"), rng.uniform(-1.5, 1.5, (5, n)), strict=True))
    return dict(
        **names,
        alpha=rng.uniform(-1.2, 1.2, n),
        mass=rng.uniform(1, 5, n),
        com=rng.normal(size=(n, 3)),
        inertia=np.einsum("kpi,kpi->k", x, x)[:, None, None] * np.eye(3) - np.einsum("kpi,kpj->kij", x, x),
    )


def defined_mass_matrix(parts):
    """M over all six coordinates of all joints, alpha to c, from the Jacobians (15) of the relative transforms."""
    q = np.stack([np.broadcast_to(parts[name], len(parts["mass"])) for name in dh.COORDINATES], axis=1)
    n = len(q)
    M = np.zeros((6 * n, 6 * n))
    J = np.zeros((6, 6 * n))  # twist of frame k, in frame k
    for k, T in enumerate(dh.transform(q)):
        R, p = T[:3, :3], T[:3, 3]
        J = np.vstack([R.T @ J[:3], R.T @ (J[3:] + np.cross(J[:3], p, axisa=0, axisc=0))])
        J[:, 6 * k : 6 * k + 6] += jacobian(q[k])
        v = J[3:] + np.cross(J[:3], parts["com"][k], axisa=0, axisc=0)
        M += parts["mass"][k] * v.T @ v + J[:3].T @ parts["inertia"][k] @ J[:3]
    return M


SOFT = [
    "alpha beta gamma a b c",
    "gamma c",
    "b",
    "beta gamma",
    ["beta", "b c", "alpha a", "gamma beta", "c"],
    ["beta alpha gamma", (), ("a", "b"), "", "beta b"],
    [(), "gamma", "a", "alpha c", "beta gamma b"],
]


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("soft", SOFT, ids=str)
def test_any_soft_coordinates(soft, name):
    parts = random_parts(5, np.random.default_rng(1))
    chain = ptd.DHChain(**parts, soft=soft)
    entries = [soft] * 5 if isinstance(soft, str) else soft
    chosen = [
        6 * k + i for k, entry in enumerate(entries) for i, coordinate in enumerate(dh.COORDINATES)
        if coordinate in (entry.split() if isinstance(entry, str) else entry)
    ]  # fmt: skip
    M = defined_mass_matrix(parts)[np.ix_(chosen, chosen)]
    np.testing.assert_allclose(chain.mass_matrix(), M, atol=1e-11 * np.abs(M).max())
    b, v = np.random.default_rng(2).normal(size=(2, len(M)))
    expected = np.linalg.solve(M, b)
    np.testing.assert_allclose(chain.solve(b, solver=name), expected, atol=1e-9 * np.abs(expected).max())
    assert chain.log_det(solver=name) == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-9)
    expected = chain.accelerations(v, b, solver="dense")
    np.testing.assert_allclose(chain.accelerations(v, b, solver=name), expected, atol=1e-9 * np.abs(expected).max())


def test_coordinates_are_named_and_ordered():
    chain = ptd.DHChain(**random_parts(2, np.random.default_rng(3)), soft=["c beta alpha", "b gamma a"])
    assert [c.kind for c in chain.tree.coordinates] == ["alpha1", "beta1", "c1", "gamma2", "a2", "b2"]
    assert [c.motion for c in chain.tree.coordinates] == ["torsion", "torsion", "slide", "torsion", "slide", "slide"]
    np.testing.assert_array_equal(chain.tree.coordinate_dof, np.arange(6))
    assert [c.dof for c in chain.tree.coordinates] == [0, 1, 2, 3, 4, 5]
    assert [(c.residue, c.residue_id) for c in chain.tree.coordinates] == [(0, "1")] * 3 + [(1, "2")] * 3


def test_names_of_soft_coordinates_may_be_separated_by_commas():
    parts = random_parts(2, np.random.default_rng(3))
    one, other = ptd.DHChain(**parts, soft="beta, c"), ptd.DHChain(**parts, soft=["c,beta", ("beta", "c")])
    assert [c.kind for c in one.tree.coordinates] == ["beta1", "c1", "beta2", "c2"]
    np.testing.assert_array_equal(one.mass_matrix(), other.mass_matrix())


@pytest.mark.parametrize("name", [name for name in SOLVERS if get_solver(name).takes_joint_inertia])
def test_joint_inertias_go_with_their_coordinates(name):
    """The link of beta comes before that of alpha, their coordinates the other way round: M + diag(a)."""
    chain = ptd.DHChain(**random_parts(2, np.random.default_rng(5)), soft="alpha beta c")
    a = np.array([0.5, 40.0, 3.0, 7.0, 0.0, 20.0])
    M, b = chain.mass_matrix() + np.diag(a), np.arange(1.0, 7.0)
    tree = chain.tree.with_joint_inertia(a)
    np.testing.assert_allclose(get_solver(name).solve(tree, tree.reference, b), np.linalg.solve(M, b), rtol=1e-9)
    assert get_solver(name).log_det(tree, tree.reference) == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-10)


@pytest.mark.parametrize("soft", ["alpha beta gamma a b c", ["beta", "b gamma", (), "alpha c"]], ids=str)
def test_the_tree_moves_as_the_parameters_say(soft):
    """The tree at other coordinates is the chain built with those values."""
    rng = np.random.default_rng(4)
    parts = random_parts(4, rng)
    chain = ptd.DHChain(**parts, soft=soft)
    q = chain.state.q + rng.uniform(-0.3, 0.3, chain.tree.n_coordinates)
    moved = {name: np.array(parts[name]) for name in dh.COORDINATES}
    for c, value in zip(chain.tree.coordinates, q, strict=True):
        moved[c.kind[:-1]][c.residue] = value
    other = ptd.DHChain(**(parts | moved), soft=soft)
    np.testing.assert_allclose(other.state.q, q)
    M = mass_matrix(chain.tree, chain.state.replace(q=q))
    np.testing.assert_allclose(M, other.mass_matrix(), atol=1e-11 * np.abs(M).max())


def test_a_pendulum_in_closed_form():
    """One body about x_0 with its centre of mass off the axis: M = I_xx + m (y^2 + z^2), and no velocity terms."""
    chain = ptd.DHChain(
        beta=[0.7], b=[0.0], c=[0.0], gamma=[0.0], mass=[2.0], com=[[0.5, 0.3, -0.4]], inertia=[[0.1, 0.2, 0.3]]
    )
    M = 0.1 + 2.0 * 0.25
    np.testing.assert_allclose(chain.mass_matrix(), [[M]])
    np.testing.assert_allclose(chain.accelerations([3.0], [1.0]), [1.0 / M])
    assert chain.log_det() == pytest.approx(np.log(M))


def test_a_rigid_chain_has_no_degrees_of_freedom():
    chain = ptd.DHChain(**PUMA, soft="")
    assert chain.tree.n_dof == 0
    assert chain.log_det() == 0.0
    assert chain.mass_matrix().shape == (0, 0)


def test_quantities():
    given = PUMA | dict(
        beta=[90, 0, -90, 90, -90, 0] * unit.degrees,
        b=[0, 43.18, 1.91, 0, 0, 0] * unit.centimeters,
        c=[0, 0, 12.54, 43.18, 0, 0] * unit.centimeters,
        com=np.array(PUMA["com"]) * unit.meters,
        mass=np.array(PUMA["mass"]) * unit.daltons,
        inertia=1e18 * np.array(PUMA["inertia"]),
    )
    found = ptd.DHChain(**given).mass_matrix()
    np.testing.assert_allclose(found, 1e18 * ptd.DHChain(**PUMA).mass_matrix(), rtol=1e-9)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(mass=5.0), r"mass has shape \(\)"),
        (dict(mass=[]), r"mass has shape \(0,\)"),
        (dict(mass=[12.0, 7.0, -4.8, 1.18, 0.32, 0.13]), "the mass of body 3 is -4.8"),
        (dict(mass=[12.0, 0.0, 4.8, 1.18, 0.32, 0.13]), "the mass of body 2 is 0"),
        (dict(beta=[0.0, 1.0]), r"beta has shape \(2,\), expected \(6,\)"),
        (dict(c=[0, 0, np.nan, 0, 0, 0]), "c holds values that are not finite"),
        (dict(com=np.zeros((6, 2))), r"com has shape \(6, 2\), expected \(6, 3\)"),
        (dict(com=np.full((6, 3), np.inf)), "com or inertia of body 1"),
        (dict(inertia=np.ones((5, 3))), r"inertia has shape \(5, 3\)"),
        (dict(inertia=np.ones((6, 3)) - 2 * np.eye(6)[:, 3:]), "the inertia of body 4 is not positive"),
        (
            dict(inertia=np.tile(np.eye(3), (6, 1, 1)) + np.eye(3)[[1, 2, 0]]),
            "the inertia of body 1 is not a symmetric",
        ),
        (dict(soft="beta delta"), "soft of joint 1 holds 'delta'; the coordinates are alpha, beta"),
        (dict(soft=["beta", "gamma"]), "soft has 2 entries, expected 6"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ArgumentError, match=message):
        ptd.DHChain(**(PUMA | change))


def test_wrong_right_hand_side():
    with pytest.raises(ArgumentError, match=r"b has shape \(5,\)"):
        ptd.DHChain(**PUMA).solve(np.ones(5))
    with pytest.raises(ArgumentError, match="unknown solver"):
        ptd.DHChain(**PUMA).solve(np.ones(6), solver="magic")


def test_parallel_axes_at_one_joint_are_singular():
    """At alpha = 90 degrees the axes of beta and gamma are one line if a = 0."""
    parts = random_parts(3, np.random.default_rng(5)) | dict(alpha=[0.3, np.pi / 2, 0.1], a=0.0)
    with pytest.raises(SolverError, match=r"same way \(beta2 .*, gamma2"):
        ptd.DHChain(**parts, soft="beta gamma").log_det()


def test_atoms_are_needed_for_points():
    chain, b = ptd.DHChain(**PUMA), np.ones(6)
    for call in (
        lambda: chain.solve(b, solver="fixman-points"),
        lambda: chain.log_det(solver="fixman-points"),
        lambda: chain.accelerations(b, b, solver="fixman-points"),
    ):
        with pytest.raises(ptd.PeptidynError, match="works on point masses"):
            call()


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_how_far_an_inertia_may_be_from_symmetric(size):
    """A part in 1e8 of its largest entry is a mistake, one in 1e10 is rounding, whatever the units."""
    for part, refused in ((1e-8, True), (1e-10, False)):
        inertia = size * (np.tile(np.eye(3), (6, 1, 1)) + np.eye(3, k=1) * part)
        if refused:
            with pytest.raises(ArgumentError, match="not a symmetric"):
                ptd.DHChain(**(PUMA | dict(inertia=inertia)))
        else:
            M = ptd.DHChain(**(PUMA | dict(inertia=inertia))).mass_matrix()
            np.testing.assert_array_equal(M, M.T)


def test_a_solver_of_the_registry_is_the_same_one():
    chain = polypeptide()
    b = np.arange(7.0)
    np.testing.assert_array_equal(chain.solve(b), get_solver("fixman").solve(chain.tree, chain.state, b))
