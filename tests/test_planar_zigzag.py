"""ln det M of long stiff chains: an exactly planar zigzag is the worst there is, and has as many digits as it can.

Out of its plane the chain is as soft as any, within it no torsion moves anything: inertias beyond a joint grow with the
cube of the length, while the pivots stay those of one bead, and the condition number of M grows with its fourth power.
Where the plane is one of the world's the large and the small numbers never meet; askew they do.
"""

from __future__ import annotations

import extended_precision
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import peptidyn as ptd
from peptidyn.solvers.dense import weighted_jacobian

pytestmark = pytest.mark.skipif(not extended_precision.AVAILABLE, reason="longdouble is float64 on this machine")

ON = [name for name in ptd.list_solvers() if name != "dense"]
"""All methods that cost O(n)."""


def zigzag(n_torsions):
    return ptd.bead_chain(n_torsions + 3, 0.15, np.deg2rad(110), 12.0)


def askew(tree):
    return tree.reference.replace(base_rotation=Rotation.from_rotvec([0.3, -0.7, 0.5]).as_quat()[[3, 0, 1, 2]][None])


@pytest.fixture(scope="module")
def long_chain():
    """3,000 torsions in two poses: tree, state and ln det M in extended precision."""
    tree = zigzag(3000)
    return {name: (tree, s, extended_precision.log_det(tree, s)) for name, s in
            (("along", tree.reference), ("askew", askew(tree)))}  # fmt: skip


def test_the_oracle_is_the_dense_one_where_that_can_be_had():
    rng = np.random.default_rng(0)
    crooked = ptd.bead_chain(43, 0.15, np.deg2rad(110), 12.0, torsion=rng.uniform(-np.pi, np.pi, 40))
    for tree in (zigzag(40), crooked):
        for state in (tree.reference, askew(tree)):
            M = extended_precision.mass_matrix(tree, state)
            exact = extended_precision.solve(M, np.zeros((len(M), 1)))[1]
            assert extended_precision.log_det(tree, state) == pytest.approx(exact, abs=1e-11)


def test_the_condition_number_grows_with_the_fourth_power_of_the_length():
    """Of M scaled to a unit diagonal: 7e7 at 100 torsions, 1.1e9 at 200, and so 5e13 at 3,000."""
    condition = []
    for n in (100, 200):
        B = weighted_jacobian(zigzag(n), zigzag(n).reference)
        singular = np.linalg.svd(B / np.linalg.norm(B, axis=0), compute_uv=False)
        condition.append((singular[0] / singular[-1]) ** 2)
    assert condition[0] == pytest.approx(6.9e7, rel=0.1)
    assert np.log2(condition[1] / condition[0]) == pytest.approx(4.0, abs=0.1)


def test_the_answer_does_not_depend_on_the_pose(long_chain):
    """What differs between solvers and poses below is rounding in the method, not in the question."""
    assert long_chain["askew"][2] == pytest.approx(long_chain["along"][2], rel=1e-10)


@pytest.mark.parametrize("name", ON)
@pytest.mark.parametrize(("pose", "relative"), [("along", 5e-9), ("askew", 2e-7)])
def test_digits_of_long_zigzags(long_chain, name, pose, relative):
    """Of ln det M = -4260.66; U_F is half of it, so that 2e-7 are 4e-4 kT."""
    tree, state, exact = long_chain[pose]
    assert ptd.get_solver(name).log_det(tree, state) == pytest.approx(exact, rel=relative)


@pytest.fixture(scope="module")
def crooked_chain(long_chain):
    """The same with torsions that are turned by 0.2 rad at random, as heat does to them."""
    tree = long_chain["along"][0]
    state = tree.reference.replace(q=tree.q_reference + 0.2 * np.random.default_rng(1).standard_normal(3000))
    return tree, state, extended_precision.log_det(tree, state)


@pytest.mark.parametrize("name", ON)
def test_crooked_chains_of_that_length_keep_their_digits(crooked_chain, name):
    tree, state, exact = crooked_chain
    assert ptd.get_solver(name).log_det(tree, state) == pytest.approx(exact, rel=2e-11)
