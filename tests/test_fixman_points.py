"""Fixman's method for point masses (paper 001): rows dq/dx, the theorem, elimination, and the planar arm."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import partial

import extended_precision
import numpy as np
import pytest
import scipy.sparse
from mechanisms import random_mechanism
from random_trees import beads, random_state, random_tree, serial_parents, star_parents
from real_structures import CRYSTAL, VILLIN_IN_WATER, load

from peptidyn.core.errors import ArgumentError, SolverError, UnsupportedError
from peptidyn.core.geometry import bond_angle, dihedral
from peptidyn.io.peptides import build_peptide
from peptidyn.model.beads import bead_chain
from peptidyn.model.build import build_tree
from peptidyn.model.kinematics import POINT, PRISMATIC
from peptidyn.solvers.dense import jacobian, mass_matrix
from peptidyn.solvers.planar_arm import PlanarArm
from peptidyn.solvers.point_elimination import FixmanPointsSolver
from peptidyn.solvers.point_elimination_plan import make_plan
from peptidyn.solvers.protocol import get_solver

SOLVER = FixmanPointsSolver()
BENDS = "phi psi chi omega methyl polar angles"
RINGS = "AFWPHYG"


def relative(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def check(tree, state, tolerance=1e-9):
    """Compare solve, log_det and accelerations with M in extended precision."""
    rng = np.random.default_rng(0)
    b, v, tau = rng.normal(size=(3, tree.n_dof))
    M = extended_precision.mass_matrix(tree, state)
    expected, log_det = extended_precision.solve(M, b[:, None])
    assert relative(SOLVER.solve(tree, state, b), expected[:, 0]) < tolerance
    assert SOLVER.log_det(tree, state) == pytest.approx(log_det, abs=1e-11 * max(10, tree.n_dof))
    dense = get_solver("dense").accelerations(tree, state, v, tau)
    assert relative(SOLVER.accelerations(tree, state, v, tau), dense) < 10 * tolerance


def linear_molecule(n, rng):
    """Return n atoms on one line, bonded in a row."""
    row = beads(serial_parents(n), rng)
    return replace(row, positions=np.outer(np.arange(n), [0.1, 0.05, -0.02]))


def gradient(function, points, step=1e-5):
    """Return the gradient (n, 3) of a function of points (n, 3), by central differences of fourth order."""
    out = np.empty_like(points)
    for at in np.ndindex(points.shape):

        def moved(h, at=at):
            changed = points.copy()
            changed[at] += h
            return function(*changed)

        out[at] = (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step)
    return out


def trees():
    """Trees of all kinds, small enough for dense algebra."""
    yield "chain", random_tree("serial", 12, seed=1)
    yield "fixed chain", random_tree("serial", 12, seed=1, base="fixed")
    yield "branched", random_tree("branched", 30, seed=2)
    yield "star", random_tree("star", 24, seed=3)
    yield "fixed star", random_tree("star", 24, seed=3, base="fixed")
    yield "forest", random_tree("forest", 36, seed=4)
    yield "rings", build_tree(build_peptide(RINGS))
    yield "bends", build_tree(build_peptide("AWPK"), BENDS)
    yield "fixed bends", build_tree(build_peptide("AWPK"), BENDS, base="fixed")
    yield "angles alone", build_tree(build_peptide("GGP"), "angles")
    # without hydrogens some units of an opened backbone are single atoms, or two on a line
    yield "heavy atoms", build_tree(build_peptide("AGSC", caps=False).subset("element != H"), BENDS)


TREES = dict(trees())


@pytest.fixture(params=TREES)
def tree(request):
    return TREES[request.param]


# ---------------------------------------------------------------------- rows


def test_rows_invert_the_jacobian(tree):
    """ds/dx J = 1 and dh/dx J = 0: soft rows measure the tree's own coordinates, hard ones stand still."""
    state = random_state(tree, np.random.default_rng(0))
    J = jacobian(tree, state).reshape(3 * tree.n_atoms, tree.n_dof)
    soft, hard = SOLVER.factor(tree, state).rows()
    moving = 3 * np.count_nonzero(make_plan(tree).mobility)
    assert soft.shape[0] + hard.shape[0] == moving
    assert np.abs(soft @ J - np.eye(tree.n_dof)).max() < 1e-11
    assert np.abs(hard @ J).max() < 1e-12


def test_rows_stay_when_the_factor_goes_on():
    tree = bead_chain(6, 0.15, 1.9, 12.0)
    rng = np.random.default_rng(2)
    factor = SOLVER.factor(tree, random_state(tree, rng))
    rows = factor.rows()
    before = [matrix.toarray() for matrix in rows]
    factor.refactor(tree, random_state(tree, rng))
    for kept, matrix, new in zip(before, rows, factor.rows(), strict=True):
        assert np.array_equal(matrix.toarray(), kept) and abs(new.toarray() - kept).max() > 0.1


def test_theorem_holds_block_by_block(tree):
    """(5), (8) and (12) with every matrix written out."""
    state = random_state(tree, np.random.default_rng(1))
    factor = SOLVER.factor(tree, state)
    mobility = make_plan(tree).mobility
    columns = np.repeat(mobility > 0, 3)
    soft, hard = (rows.toarray()[:, columns] for rows in factor.rows())
    B, inverse_mass = np.concatenate([soft, hard]), np.repeat(mobility, 3)[columns]
    H = (B * inverse_mass) @ B.T
    n = tree.n_dof
    H11, H12, H22 = H[:n, :n], H[:n, n:], H[n:, n:]
    M = mass_matrix(tree, state)
    assert relative(np.linalg.inv(H11 - H12 @ np.linalg.solve(H22, H12.T)), M) < 1e-9
    assert factor.log_det_H22 == pytest.approx(np.linalg.slogdet(H22)[1], abs=1e-9)
    log_det_B = np.linalg.slogdet(B)[1]
    assert factor.log_det_G == pytest.approx(-np.log(inverse_mass).sum() - 2 * log_det_B, abs=1e-9)
    assert factor.log_det_G == pytest.approx(-np.linalg.slogdet(H)[1], abs=1e-8)
    assert factor.log_det() == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-9)
    # the sweeps alone, without the step of refinement that would hide a small mistake in them
    assert relative(factor.solve(np.eye(n), refinements=0), np.linalg.inv(M)) < 1e-10


def turned(start, a, r1, r2, r3):
    """Return the torsion of atom a, from `start` on: without the jump at pi."""
    return np.angle(np.exp(1j * (dihedral(r3, r2, r1, a) - start)))


@pytest.mark.parametrize("tree", [TREES["branched"], TREES["rings"]], ids=["branched", "rings"])
def test_rows_are_those_of_bonds_angles_and_torsions(tree):
    """Soft rows are the gradients of dihedrals; those of all other BAT coordinates are combinations of hard rows."""
    state = random_state(tree, np.random.default_rng(2))
    x = tree.positions(state)
    soft, hard = (rows.tocsr() for rows in SOLVER.factor(tree, state).rows())
    plan = make_plan(tree)
    blocks, start = plan.blocks, np.concatenate([[0], np.cumsum(plan.blocks.n_hard)])
    n_torsions = 0
    for b in np.flatnonzero((blocks.n_own == 1) & (blocks.frame >= 0)):
        atoms = np.array([blocks.column[blocks.column_at[b]], *plan.frames[blocks.frame[b]]])
        places = (3 * atoms[:, None] + np.arange(3)).ravel()
        torsion = gradient(partial(turned, dihedral(*x[atoms[::-1]])), x[atoms]).ravel()
        bond = gradient(lambda a, r1: np.linalg.norm(a - r1), x[atoms[:2]]).ravel()
        angle = gradient(bond_angle, x[atoms[:3]]).ravel()
        wilson = [np.pad(row, (0, 12 - len(row))) for row in (bond, angle)]
        if blocks.n_soft[b]:
            n_torsions += 1
            row = soft[[blocks.dof[blocks.dof_at[b]]]].toarray()[0]
            assert np.abs(row[places] - torsion).max() < 1e-7 * np.abs(torsion).max()
        else:
            wilson.append(torsion)
        span = hard[start[b] : start[b + 1]].toarray()[:, places]
        assert len(span) == len(wilson)
        if np.sin(bond_angle(*x[atoms[:3]])) < 0.05:
            wilson = wilson[:1]  # an atom in line with two of its references: angle and torsion have no gradient
        for row in wilson:
            coefficients = np.linalg.lstsq(span.T, row, rcond=None)[0]
            assert np.abs(span.T @ coefficients - row).max() < 1e-6 * np.abs(row).max()
    assert n_torsions == tree.n_torsions


@pytest.mark.parametrize("n", [4, 5, 9, 40])
def test_chain_of_beads_by_the_textbook(n):
    """ln det M from Wilson's rows of bonds and angles, and from prod m^3 b^4 sin^2, without any other row."""
    rng = np.random.default_rng(n)
    chain = bead_chain(n, 0.15, 1.9, rng.uniform(1, 30, n))
    state = chain.reference.replace(torsions=rng.uniform(-np.pi, np.pi, n - 3))
    x = chain.positions(state)
    d = np.diff(x, axis=0)
    b, u = np.linalg.norm(d, axis=1), d / np.linalg.norm(d, axis=1, keepdims=True)
    cosine = -(u[:-1] * u[1:]).sum(axis=1)
    sine = np.sqrt(1 - cosine**2)
    rows = np.zeros((2 * n - 3, n, 3))
    for i in range(n - 1):
        rows[i, i], rows[i, i + 1] = -u[i], u[i]
    for i in range(n - 2):
        row = rows[n - 1 + i]
        row[i] = (-u[i] * cosine[i] - u[i + 1]) / (b[i] * sine[i])
        row[i + 2] = (u[i + 1] * cosine[i] + u[i]) / (b[i + 1] * sine[i])
        row[i + 1] = -row[i] - row[i + 2]
    H22 = np.einsum("iak,jak,a->ij", rows, rows, 1 / chain.masses)
    log_det_G = 3 * np.log(chain.masses).sum() + 4 * np.log(b).sum() + 2 * np.log(sine).sum()
    expected = log_det_G + np.linalg.slogdet(H22)[1]
    assert SOLVER.log_det(chain, state) == pytest.approx(expected, abs=1e-10 * n)


# ---------------------------------------------------------------------- against the definition of M


def test_trees_of_all_kinds(tree):
    check(tree, random_state(tree, np.random.default_rng(3)), 1e-10)


@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize(("kind", "n"), [("serial", 150), ("branched", 150), ("star", 90), ("forest", 120)])
def test_larger_trees(kind, n, base):
    for seed in range(2):
        random = random_tree(kind, n, seed=seed, base=base)
        check(random, random_state(random, np.random.default_rng(seed)))


def test_root_choice_does_not_change_log_det():
    structure = build_peptide(RINGS)
    values = []
    for root in range(0, structure.n_atoms, 7):
        rooted = build_tree(structure, BENDS, root=root)
        values.append(SOLVER.log_det(rooted, rooted.reference))
    assert np.ptp(values) < 1e-10


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_a_large_rigid_unit(base):
    """Half of a peptide frozen into one body, at the root or at the end of a flexible tail."""
    structure = build_peptide("AWPKFYLMRE")
    half = list(range(structure.n_atoms // 2))
    for root in (0, structure.n_atoms - 1):
        partly = build_tree(structure, BENDS, rigid=half, root=root, base=base)
        check(partly, random_state(partly, np.random.default_rng(4)))


def test_an_opened_angle_may_be_straight():
    """At sin(theta) = 0 the torsion of Wilson's rows is undefined; M is not singular there."""
    open_tree = build_tree(build_peptide("AAA"), BENDS)
    q = random_state(open_tree, np.random.default_rng(5)).q.copy()
    bends = open_tree.bend_index
    for straight in (bends[3:4], bends[5:6], bends[::3]):
        changed = q.copy()
        changed[straight] = np.pi
        check(open_tree, open_tree.reference.replace(q=changed))


def test_waters_and_ions():
    solvated = build_tree(load(VILLIN_IN_WATER))
    assert (solvated.joint == POINT).any()
    rng = np.random.default_rng(6)
    state = random_state(solvated, rng)
    v = rng.normal(size=solvated.n_dof)
    assert relative(SOLVER.solve(solvated, state, solvated.momenta(state, v)), v) < 1e-10
    # molecules do not feel each other: ln det M is the sum over them
    water = int(np.flatnonzero(solvated.molecule_dof[1:] - solvated.molecule_dof[:-1] == 6)[0])
    link = int(solvated.molecule_link[water])
    alone = 3 * np.log(solvated.link_mass[link]) + np.linalg.slogdet(solvated.link_inertia[link])[1]
    x = solvated.positions(solvated.reference)
    inside = np.flatnonzero(solvated.atom_link == link)
    structure = load(VILLIN_IN_WATER).subset(inside)
    single = build_tree(structure)
    assert SOLVER.log_det(single, single.state(x[inside])) == pytest.approx(alone, abs=1e-11)


def test_units_without_hydrogens():
    """A crystal structure with residues that lack hydrogens: units of an opened backbone that are lines."""
    opened = build_tree(load(CRYSTAL).subset("protein"), BENDS)
    plan = make_plan(opened)
    assert plan.blocks.n_own.max() > 2  # lines were joined with what hangs on them
    rng = np.random.default_rng(7)
    state = random_state(opened, rng)
    v = rng.normal(size=opened.n_dof)
    assert relative(SOLVER.solve(opened, state, opened.momenta(state, v)), v) < 1e-9
    expected = get_solver("udu").log_det(opened, state)
    assert SOLVER.log_det(opened, state) == pytest.approx(expected, rel=1e-12)


def test_further_proteins(further_structure):
    for name in ("5dfr-minimized.pdb", "bpti.pdb"):
        protein = build_tree(load(further_structure(name)))
        rng = np.random.default_rng(8)
        state = random_state(protein, rng)
        v = rng.normal(size=protein.n_dof)
        assert relative(SOLVER.solve(protein, state, protein.momenta(state, v)), v) < 1e-9
        expected = get_solver("udu").log_det(protein, state)
        assert SOLVER.log_det(protein, state) == pytest.approx(expected, rel=1e-12)


def test_sliding_joints():
    """`build_tree` makes none; the rows know them."""
    tree = random_tree("serial", 8, seed=9)
    joint = tree.joint.copy()
    joint[2] = PRISMATIC
    own = np.arange(tree.n_atoms)
    # an axis does not hold its atoms when the joint slides: each belongs to one unit alone
    sliding = replace(tree, joint=joint, share_link=tree.atom_link, share_atom=own, share_weight=np.ones(tree.n_atoms))
    state = sliding.reference
    J = jacobian(sliding, state).reshape(3 * tree.n_atoms, tree.n_dof)
    soft, hard = SOLVER.factor(sliding, state).rows()
    assert np.abs(soft @ J - np.eye(tree.n_dof)).max() < 1e-11
    assert np.abs(hard @ J).max() < 1e-12
    M = mass_matrix(sliding, state)
    b = np.random.default_rng(10).normal(size=tree.n_dof)
    assert relative(SOLVER.solve(sliding, state, b), np.linalg.solve(M, b)) < 1e-9
    assert SOLVER.log_det(sliding, state) == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-10)


def test_no_degrees_of_freedom():
    held = build_tree(beads([-1, 0, 1, -1], np.random.default_rng(0)), soft="none", base="fixed")
    assert SOLVER.log_det(held, held.reference) == 0.0
    assert SOLVER.solve(held, held.reference, np.empty((0, 3))).shape == (0, 3)


def test_many_columns_are_each_solved():
    tree = TREES["branched"]
    state = random_state(tree, np.random.default_rng(11))
    b = np.random.default_rng(12).normal(size=(tree.n_dof, 5))
    together = SOLVER.solve(tree, state, b)
    for k in range(5):
        assert np.array_equal(together[:, k], SOLVER.solve(tree, state, b[:, k]))


# ---------------------------------------------------------------------- cost


def size(tree):
    """Return the widest front of a plan in atoms, and the numbers that a factor stores."""
    plan = make_plan(tree)
    values = plan.blocks.soft_at[-1] + plan.blocks.hard_at[-1] + plan.blocks.gain_at[-1] + plan.fronts.store
    return int(np.diff(plan.fronts.atom_at).max()), int(values)


def test_fill_does_not_grow_with_a_chain():
    (wide, few), (wider, many) = (size(bead_chain(n, 0.15, 1.9, 12.0)) for n in (100, 1000))
    assert wide == wider == 3
    assert many < 10.5 * few


def test_fill_does_not_grow_with_a_peptide():
    (wide, few), (wider, many) = (size(build_tree(build_peptide("AWPK" * n), BENDS)) for n in (2, 8))
    assert wide == wider <= 7
    assert many < 4.5 * few


@pytest.mark.parametrize("soft", ["none", "chi methyl polar"])
def test_fill_does_not_grow_with_a_rigid_unit(soft):
    """One rigid backbone, without and with a joint at every residue."""
    (wide, few), (wider, many) = (size(build_tree(build_peptide("AILV" * n), soft)) for n in (2, 8))
    assert wide == wider <= 6
    assert many < 4.5 * few


def test_fill_does_not_grow_with_the_joints_of_one_atom():
    rng = np.random.default_rng(13)
    (wide, few), (wider, many) = (size(build_tree(beads(star_parents(n, 3), rng), "rotor")) for n in (6, 24))
    assert wide == wider <= 6
    assert many < 4.5 * few


def test_a_place_is_used_again_only_when_no_front_reads_it_any_more(tree):
    """What a front is made of lies elsewhere than its own matrix."""
    fronts = make_plan(tree).fronts
    size = 9 * np.diff(fronts.atom_at) ** 2
    begin, end = fronts.matrix_at, fronts.matrix_at + size
    assert end.max() <= fronts.store
    last_read = np.arange(len(size))  # a front's own blocks, then the front that takes its atoms over
    for f in range(len(size)):
        sources = fronts.source[fronts.atom_at[f] : fronts.atom_at[f + 1]]
        last_read[sources[sources >= 0]] = f
        assert (sources < f).all()
    for f in range(len(size)):
        for g in range(f + 1, last_read[f] + 1):
            assert end[f] <= begin[g] or end[g] <= begin[f]


def test_plans_are_kept_while_their_trees_live():
    solver = FixmanPointsSolver()
    chain = bead_chain(10, 0.15, 1.9, 12.0)
    first = solver.factor(chain, chain.reference)
    assert solver.factor(chain, chain.reference)._plan is first._plan
    del chain, first
    gc.collect()
    assert len(solver._plans) == 0


def test_factors_do_not_share_memory():
    chain = bead_chain(10, 0.15, 1.9, 12.0)
    other = chain.reference.replace(torsions=np.linspace(-1, 1, 7))
    factor = SOLVER.factor(chain, chain.reference)
    before = factor.solve(np.ones((13, 1)))
    SOLVER.factor(chain, other)
    assert np.array_equal(factor.solve(np.ones((13, 1))), before)


def test_refinement_gives_back_digits_where_forces_are_large():
    """Forces M x that move a chain as a whole are large; their parts on single atoms almost cancel."""
    tree = random_tree("serial", 60, seed=0)
    state, rng = random_state(tree, np.random.default_rng(0)), np.random.default_rng(1)
    M = extended_precision.mass_matrix(tree, state)
    b = (M @ rng.normal(size=(tree.n_dof, 2))).astype(float)
    expected = extended_precision.solve(M, b)[0]
    factor = SOLVER.factor(tree, state)
    plain, refined = (relative(factor.solve(b, refinements=n), expected) for n in (0, 1))
    assert refined < 0.5 * plain
    assert np.array_equal(factor.solve(b), factor.solve(b, refinements=1))
    assert np.array_equal(SOLVER.solve(tree, state, b), factor.solve(b))


# ---------------------------------------------------------------------- what has no answer


@pytest.mark.parametrize("n", [2, 3, 5])
def test_linear_molecules_are_named(n):
    line = build_tree(linear_molecule(n, np.random.default_rng(0)), soft="none")
    with pytest.raises(SolverError, match=r"singular at the molecule MOL 1 \(chain A\)"):
        SOLVER.log_det(line, line.reference)
    fixed = build_tree(linear_molecule(n, np.random.default_rng(0)), soft="none", base="fixed")
    assert SOLVER.log_det(fixed, fixed.reference) == 0.0


def test_a_torsion_that_turns_nothing_is_named():
    chain = bead_chain(5, 0.15, 1.9, 12.0)
    x = chain.positions(chain.reference).copy()
    x[4] = x[3] + 0.9 * (x[3] - x[2])  # the last bead, on the axis of the last torsion
    straight = chain.with_geometry(x)
    with pytest.raises(SolverError, match="singular at the molecule BEADS 1"):
        SOLVER.log_det(straight, straight.reference)


def test_planar_groups_are_no_problem():
    zigzag = bead_chain(30, 0.15, 1.9, 12.0)  # every torsion at pi: all beads in one plane
    check(zigzag, zigzag.reference)


def test_nearly_collinear_units_lose_digits_but_not_the_answer():
    tree = bead_chain(12, 0.15, np.pi - 1e-3, 12.0, torsion=1.0)
    expected = get_solver("udu").log_det(tree, tree.reference)
    assert SOLVER.log_det(tree, tree.reference) == pytest.approx(expected, abs=1e-8)


def test_models_without_atoms_are_refused():
    arm = random_mechanism(5, seed=0)
    with pytest.raises(UnsupportedError, match="bodies without atoms; use 'fixman'"):
        SOLVER.log_det(arm, arm.reference)


def test_massless_links_that_branch_are_refused():
    tree = random_tree("serial", 8, seed=0)
    kept = (tree.share_link != 2) & (tree.atom_link[tree.share_atom] != 2)
    parent = tree.parent.copy()
    parent[4] = 2
    branching = replace(
        tree, parent=parent, share_link=tree.share_link[kept], share_atom=tree.share_atom[kept],
        share_weight=tree.share_weight[kept],
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="link 2 has no atoms and carries several joints"):
        SOLVER.log_det(branching, branching.reference)


def test_links_without_atoms_at_a_tip_are_singular():
    tree = random_tree("serial", 8, seed=0)
    last = tree.n_links - 1
    kept = (tree.share_link != last) & (tree.atom_link[tree.share_atom] != last)
    bare = replace(
        tree, share_link=tree.share_link[kept], share_atom=tree.share_atom[kept], share_weight=tree.share_weight[kept]
    )
    with pytest.raises(SolverError, match="singular at the"):
        make_plan(bare)


def test_atoms_that_a_fixed_base_holds_do_not_count():
    """Neither in ln det G, nor as columns of rows, nor as atoms that could move."""
    tree = random_tree("branched", 20, seed=3, base="fixed")
    held = np.unique(tree.share_atom[tree.share_link == 0])  # with those on the axes of joints
    plan = make_plan(tree)
    assert not plan.mobility[held].any() and len(held) > 1
    moving = np.setdiff1d(np.arange(tree.n_atoms), held)
    assert plan.mobility[moving] == pytest.approx(1 / tree.masses[moving])
    assert not np.isin(plan.blocks.column, held).any() and not np.isin(plan.fronts.atom, held).any()
    assert plan.blocks.n_soft.sum() == tree.n_dof and (plan.blocks.n_soft + plan.blocks.n_hard).sum() == 3 * len(moving)


def test_hard_rows_of_a_torsion_touch_two_atoms_of_the_frame():
    """The third says where the torsion begins, which is soft; at an opened angle it counts for the hard rows too."""
    plan = make_plan(bead_chain(8, 0.15, 1.9, 12.0))
    torsions = np.flatnonzero(plan.blocks.n_soft == 1)
    assert len(torsions) == 5 and (np.diff(plan.blocks.column_at)[torsions] == 4).all()
    assert (plan.blocks.n_hard_columns[torsions] == 3).all() and (plan.blocks.n_hard[torsions] == 2).all()
    plan = make_plan(TREES["angles alone"])
    bends = np.flatnonzero(plan.blocks.n_soft == 1)
    columns = np.diff(plan.blocks.column_at)[bends]
    assert len(bends) > 5 and np.array_equal(columns, plan.blocks.n_own[bends] + 3)
    assert np.array_equal(plan.blocks.n_hard_columns[bends], columns)


# ---------------------------------------------------------------------- the planar arm


def random_arm(n, rng, straight=False):
    angles = np.zeros(n) if straight else rng.uniform(-np.pi, np.pi, n)
    if straight:
        angles[0] = 0.7
    return PlanarArm(rng.uniform(0.5, 2.0, n), rng.uniform(0.5, 2.0, n), angles), angles


@pytest.mark.parametrize("straight", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 6, 50])
def test_planar_arm(n, straight):
    rng = np.random.default_rng(n)
    arm, _ = random_arm(n, rng, straight)
    M = arm.mass_matrix()
    b = rng.normal(size=(n, 3))
    expected, log_det = extended_precision.solve(M.astype(np.longdouble), b)
    allowed = 1e-15 * np.linalg.cond(M) + 1e-14
    assert relative(arm.solve(b), expected) < allowed
    assert relative(arm.solve(b[:, 0]), expected[:, 0]) < allowed
    assert arm.log_det() == pytest.approx(log_det, abs=allowed * n)
    assert allowed < 1e-6


def test_planar_arm_of_two_links_by_hand():
    arm = PlanarArm([1.5, 0.8], [2.0, 3.0], [0.4, 1.1])
    a, b, c, m2 = 2.0 * 1.5**2, 3.0 * 1.5**2, 3.0 * 1.5 * 0.8 * np.cos(1.1), 3.0 * 0.8**2
    assert np.allclose(arm.mass_matrix(), [[a + b + m2 + 2 * c, m2 + c], [m2 + c, m2]], rtol=1e-14)


@pytest.mark.parametrize("straight", [False, True])
def test_rows_of_the_planar_arm(straight):
    """Gradients of (15) and of the signed angle, in every configuration, with the bands (24)."""
    arm, _ = random_arm(6, np.random.default_rng(1), straight)
    theta_rows, length_rows = arm.rows()

    def turn(x):
        d = np.diff(np.concatenate([[[-1.0, 0.0], [0.0, 0.0]], x.reshape(-1, 2)]), axis=0)
        u, v = d[:-1], d[1:]
        return np.arctan2(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0], (u * v).sum(axis=1))

    def length(x):
        return np.linalg.norm(np.diff(np.concatenate([[[0.0, 0.0]], x.reshape(-1, 2)]), axis=0), axis=1)

    x, h = arm.positions.ravel(), 1e-6
    for rows, function in ((theta_rows, turn), (length_rows, length)):
        for k in range(12):
            step = h * np.eye(12)[k]
            slope = (function(x + step) - function(x - step)) / (2 * h)
            assert np.abs(rows.toarray()[:, k] - slope).max() < 1e-8
    H = scipy.sparse.vstack([theta_rows, length_rows]) @ scipy.sparse.vstack([theta_rows, length_rows]).T
    H = H.toarray()
    i, j = np.indices((6, 6))
    assert np.abs(H[:6, :6][np.abs(i - j) > 2]).max() < 1e-15
    assert np.abs(H[:6, 6:][(i - j > 2) | (j - i > 1)]).max() < 1e-15
    assert np.abs(H[6:, 6:][np.abs(i - j) > 1]).max() < 1e-15


def test_printed_rows_and_order_of_the_planar_arm_fail():
    """(21) as printed and as corrected, and the order of factors in (25): what the corrections are worth."""
    rng = np.random.default_rng(2)
    L, m, theta = rng.uniform(0.5, 2.0, (3, 6))
    arm = PlanarArm(L, m, theta)
    exact = np.linalg.inv(arm.mass_matrix())
    x = np.concatenate([[[-1.0, 0.0], [0.0, 0.0]], arm.positions])
    d = np.diff(x, axis=0)  # d[0] belongs to the fixed link of length 1 before the first

    def inverse(last, order):
        theta_rows, length_rows = np.zeros((2, 6, 8, 2))
        for i in range(6):
            before, here = d[i], d[i + 1]
            scale = -1.0 / (np.linalg.norm(before) * L[i] * np.sin(theta[i]))
            theta_rows[i, i + 2] = scale * before
            theta_rows[i, i + 1] = scale * (here - before)
            theta_rows[i, i] = -scale * (before if last == "printed" else here)
            length_rows[i, i + 2], length_rows[i, i + 1] = here / L[i], -here / L[i]
        t, l = (rows[:, 2:].reshape(6, 12) for rows in (theta_rows, length_rows))
        mobility = np.repeat(1 / m, 2)
        H_tt, H_tL, H_LL = (t * mobility) @ t.T, (t * mobility) @ l.T, (l * mobility) @ l.T
        middle = H_tL if order == "right" else H_tL.T
        return H_tt - middle @ np.linalg.inv(H_LL) @ middle.T

    assert relative(inverse("corrected", "right"), exact) < 1e-12
    assert relative(inverse("printed", "right"), exact) > 1e-2
    assert relative(inverse("corrected", "printed"), exact) > 1e-2
    assert relative(arm.solve(np.eye(6)), exact) < 1e-12


def test_planar_arm_refuses_bad_input():
    with pytest.raises(ArgumentError, match=r"shapes \(2,\), \(3,\) and \(2,\)"):
        PlanarArm([1, 1], [1, 1, 1], [0, 0])
    with pytest.raises(ArgumentError, match=r"shapes \(2,\), \(2,\) and \(3,\)"):
        PlanarArm([1, 1], [1, 1], [0, 0, 0])
    for empty in ([], [[1.0]], 1.0):
        with pytest.raises(ArgumentError, match="at least one"):
            PlanarArm(empty, empty, empty)
    with pytest.raises(ArgumentError, match="lengths holds -1, expected positive"):
        PlanarArm([1, -1], [1, 1], [0, 0])
    with pytest.raises(ArgumentError, match="masses holds 0, expected positive"):
        PlanarArm([1, 1], [1, 0], [0, 0])
    with pytest.raises(ArgumentError, match="angles holds values"):
        PlanarArm([1, 1], [1, 1], [0, np.nan])
    arm = PlanarArm([1, 1], [1, 1], [0, 0])
    with pytest.raises(ArgumentError, match=r"b has shape \(3,\), expected \(2,\)"):
        arm.solve(np.ones(3))
    with pytest.raises(ArgumentError, match="b holds values"):
        arm.solve([np.inf, 0.0])
