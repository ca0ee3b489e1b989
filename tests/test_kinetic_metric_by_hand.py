"""Joint inertias by hand: a_i = sum_j |k_ij| sqrt(s_i / s_j) (T / 2 pi)^2, with curvatures k by differences.

The scale s_i is the curvature k_i, unless couplings or a lower bound ask for more.
"""

from __future__ import annotations

from types import SimpleNamespace

import butane
import numpy as np
import openmm
import pytest
from openmm import app
from scipy.sparse import csr_array

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine import kinetic_metric, stiffness
from peptidyn.engine.kinetic_metric import (
    _smallest_share,
    check_metric,
    effective_inertia,
    fastest_motion,
    metropolis_steps,
    slow_torsions,
    stiffness_bound,
    tree_with_metric,
)
from peptidyn.engine.stiffness import measure_stiffness
from peptidyn.solvers.dense import mass_matrix


def coupled_butane():
    """Butane with springs between its first and third, and second and fourth atoms, which couple bonds and angles."""
    system = openmm.System()
    for _ in range(4):
        system.addParticle(butane.MASS)
    bonds, angles = openmm.HarmonicBondForce(), openmm.HarmonicAngleForce()
    for i in range(3):
        bonds.addBond(i, i + 1, butane.BOND, 60000.0)
    for i in range(2):
        angles.addAngle(i, i + 1, i + 2, butane.ANGLE, 120.0)
        bonds.addBond(i, i + 2, 2 * butane.BOND * np.sin(butane.ANGLE / 2), 9000.0)
    torsion = openmm.PeriodicTorsionForce()
    torsion.addTorsion(0, 1, 2, 3, 3, 0.0, 4.0)
    for force in (bonds, angles, torsion):
        system.addForce(force)
    return system


def curvatures(tree, system, h=1e-4):
    """Return d2V/dq_i dq_j at the reference by differences of energies."""
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))

    def energy(*steps):
        q = tree.q_reference.copy()
        for k, step in steps:
            q[k] += step
        context.setPositions(tree.positions(tree.reference.replace(q=q)))
        return context.getState(energy=True).getPotentialEnergy()._value

    n = tree.n_coordinates
    H = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            terms = [a * b * energy((i, a * h), (j, b * h)) for a in (1, -1) for b in (1, -1)]
            H[i, j] = sum(terms) / (4 * h * h)
    return H


@pytest.mark.parametrize("steps_per_period", [8.0, 12.0])
def test_stiff_coordinates_get_the_period_that_was_asked_for(steps_per_period):
    system, topology = coupled_butane(), butane.make_topology()
    chain = butane.make_tree()
    x = chain.positions(chain.reference.replace(torsions=[1.1]))
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x), "all")
    timestep = 0.012
    found = ptd.joint_inertia(tree, system, timestep, steps_per_period=steps_per_period)
    stiff = np.concatenate([tree.stretch_index, tree.bend_index])
    H = curvatures(tree, system)
    k = np.abs(np.diag(H))
    bound = (np.sqrt(k) * (np.abs(H) / np.sqrt(k)[None, :]).sum(axis=1))[stiff]
    assert (bound > 1.1 * k[stiff]).any()  # couplings count
    assert found[stiff] == pytest.approx(bound * (steps_per_period * timestep / (2 * np.pi)) ** 2, rel=2e-3)


def test_curvatures_of_terms_that_are_not_harmonic():
    """k (1 + cos 3f) has the curvature -9 k cos 3f, and 1e6 (r - r0)^4 none at r0: displacements are small and even."""
    topology, system, k = butane.make_topology(), openmm.System(), 4.0
    torsion, bond = openmm.PeriodicTorsionForce(), openmm.CustomBondForce(f"1e6*(r-{butane.BOND})^4")
    torsion.addTorsion(0, 1, 2, 3, 3, 0.0, k)
    bond.addBond(2, 3, [])
    for _ in range(4):
        system.addParticle(butane.MASS)
    for force in (torsion, bond):
        system.addForce(force)
    tree = butane.make_tree()
    x = tree.positions(tree.reference.replace(torsions=[0.3]))
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x), "rotor bonds")
    found = measure_stiffness(tree, system).toarray()
    assert found[tree.torsion_index, tree.torsion_index] == pytest.approx([-9.0 * k * np.cos(0.9)], abs=1e-3)
    assert np.diag(found)[tree.stretch_index] == pytest.approx(np.zeros(3), abs=0.1)


def test_scales_of_coupled_coordinates():
    """Three coordinates with curvatures 900, 16 and 0.

    Couplings: 40 between the first two, less than sqrt(900 * 16), and 30 of the last with both: its scale is the larger
    of 30^2 / 900 and 30^2 / 30. Then the first has 900 + 40 sqrt(900/30) + 30 sqrt(900/30), with 30^2 / 30 for the
    second, too.
    """
    K = np.array([[900.0, 40.0, -30.0], [40.0, 16.0, 30.0], [-30.0, 30.0, 0.0]])
    r = np.sqrt(30.0)
    expected = [900.0 + 70.0 * r, 16.0 + 40.0 / r + 30.0, 30.0 / r + 30.0]
    assert stiffness_bound(csr_array(K)) == pytest.approx(expected, rel=1e-12)


def test_a_coordinate_without_curvature_leaves_its_neighbours_as_they_are():
    """A methyl without a barrier has no curvature, and couplings of rounding errors alone."""
    K = np.array([[3e5, 1e-7, 0.0], [1e-7, 0.0, 1e-8], [0.0, 1e-8, 500.0]])
    assert stiffness_bound(csr_array(K)) == pytest.approx([3e5, 0.0, 500.0], rel=1e-6, abs=1e-6)
    assert stiffness_bound(csr_array(np.zeros((2, 2)))).tolist() == [0.0, 0.0]


def test_no_motion_is_stiffer_than_the_bound():
    """Curvatures from 1e-3 to 1e5 with couplings of any size: diag(d) - K has no negative eigenvalue."""
    rng = np.random.default_rng(3)
    for n in (2, 5, 30):
        root = 10.0 ** rng.uniform(-1.5, 2.5, n)
        K = np.outer(root, root) * rng.normal(size=(n, n))
        K = K + K.T
        bound = stiffness_bound(csr_array(K))
        assert np.linalg.eigvalsh((np.diag(bound) - K) / np.sqrt(np.outer(bound, bound))).min() > -1e-12
        assert (bound >= np.abs(np.diag(K)) * (1 - 1e-12)).all()


@pytest.mark.parametrize("make", [lambda: ptd.build_peptide("APPGPA"), lambda: ptd.build_peptide("GYDPETGTWG")])
def test_no_inertia_is_out_of_proportion(make):
    """Nothing weighs more than 40 times what its own curvature asks for, or a torsion of 500 kJ/mol/rad^2."""
    structure = make()
    system = ptd.make_system(structure.topology, solvent="vacuum")
    tree = ptd.build_tree(ptd.Structure.from_openmm(structure.topology, system, structure.positions), "all")
    square = (8.0 * 0.016 / (2.0 * np.pi)) ** 2
    own = np.abs(measure_stiffness(tree, system).diagonal()) * square
    assert (ptd.joint_inertia(tree, system, 0.016) <= 40.0 * np.maximum(own, 500.0 * square)).all()


def test_steps_per_period_of_metropolised_steps_grow_as_the_sixth_root():
    few, many = (metropolis_steps(SimpleNamespace(n_coordinates=n)) for n in (1, 64))
    assert few == pytest.approx(7.5) and many == pytest.approx(15.0)


@pytest.mark.parametrize("timestep", [0.0, -0.002, np.inf, np.nan])
def test_time_steps_that_mean_nothing_are_refused(timestep):
    with pytest.raises(ArgumentError, match=r"the time step is .* ps, expected a positive time"):
        ptd.joint_inertia(butane.make_tree(), butane.make_system(), timestep)


def test_a_torsion_may_turn_seven_tenths_of_a_radian_per_step():
    """And a step for half of that is proposed to whoever asks for more."""
    tree, system = butane.make_tree(), butane.make_system()
    own = 1.0 / np.linalg.inv(mass_matrix(tree, tree.reference))[tree.coordinate_dof[0], tree.coordinate_dof[0]]
    longest = 0.7 / np.sqrt(BOLTZMANN * 300.0 / own)
    assert ptd.joint_inertia(tree, system, 0.999 * longest).shape == (1,)
    with pytest.raises(ArgumentError, match=rf"would turn 40 degrees .* try {500 * longest:.0f} fs"):
        ptd.joint_inertia(tree, system, 1.001 * longest)
    with pytest.raises(ArgumentError, match=rf"would turn 80 degrees .* try {500 * longest:.0f} fs"):
        ptd.joint_inertia(tree, system, 2.0 * longest)


def test_the_turn_at_thermal_speed_is_that_of_the_bare_torsion():
    tree, system, timestep = butane.make_tree(), butane.make_system(), 0.2
    own = 1.0 / np.linalg.inv(ptd.mass_matrix(tree, tree.reference))[tree.coordinate_dof[0], tree.coordinate_dof[0]]
    turn = np.rad2deg(timestep * np.sqrt(BOLTZMANN * 300.0 / own))
    with pytest.raises(ArgumentError, match=f"would turn {turn:.0f} degrees per step"):
        ptd.joint_inertia(tree, system, timestep)


def test_polar_hydrogens_meet_others_too():
    """The hydroxyl of serine, whose barrier is low."""
    structure = ptd.build_peptide("S", caps=True)
    system = ptd.make_system(structure.topology, solvent="vacuum")
    tree = ptd.build_tree(ptd.Structure.from_openmm(structure.topology, system, structure.positions), "phi psi polar")
    place = [c.kind for c in tree.coordinates].index("polar")
    square = (8.0 * 0.004 / (2.0 * np.pi)) ** 2
    assert ptd.joint_inertia(tree, system, 0.004)[place] == pytest.approx(500.0 * square, rel=1e-9)


@pytest.mark.parametrize("timestep", [0.008, 0.024])
def test_hydrogens_that_meet_and_light_rotors_get_inertia(timestep):
    """Methyls of capped alanine, whose atoms meet others harder than the bonded terms say; phi and psi beside them.

    A rotor keeps its own inertia, 1 / (M^-1)_ii, if that is enough: both for the period of 8 steps, of its curvature or
    of a contact of 500 kJ/mol/rad^2, and for a turn of 0.2 rad per step at thermal speed.
    """
    structure = ptd.build_peptide("A", phi=-70, psi=-40, caps=True)
    system = ptd.make_system(structure.topology, solvent="vacuum")
    tree = ptd.build_tree(ptd.Structure.from_openmm(structure.topology, system, structure.positions), "all")
    found = ptd.joint_inertia(tree, system, timestep)
    K, square = np.abs(measure_stiffness(tree, system).toarray()), (8.0 * timestep / (2.0 * np.pi)) ** 2
    wanted = stiffness_bound(csr_array(K)) * square
    rotors = tree.torsion_index
    methyl = np.array([tree.coordinates[i].kind == "methyl" for i in rotors])
    assert methyl.sum() == 3 and (wanted[rotors][methyl] < 500.0 * square).all()
    stiff = wanted.copy()
    stiff[rotors] = 0.0
    dof = tree.coordinate_dof[rotors]
    M = mass_matrix(tree.with_joint_inertia(stiff), tree.reference)
    own = 1.0 / np.diag(np.linalg.inv(M))[dof]
    least = np.where(methyl, np.maximum(wanted[rotors], 500.0 * square), wanted[rotors])
    light = np.maximum(BOLTZMANN * 300.0 * (timestep / 0.2) ** 2 - own, 0.0)
    expected = np.maximum(np.where(least > own, least, 0.0), light)
    assert found[rotors] == pytest.approx(expected, rel=1e-6) and found[rotors][methyl].all()
    assert (light > 0.0).any() or timestep < 0.01


def test_a_light_rotor_gets_what_it_lacks():
    """Butane, at a temperature where its torsion would turn 0.4 rad per step: four times its inertia makes that 0.2."""
    tree, timestep = butane.make_tree(), 0.02
    dof = tree.coordinate_dof[0]
    own = 1.0 / np.linalg.inv(mass_matrix(tree, tree.reference))[dof, dof]
    hot = (0.4 / timestep) ** 2 * own / BOLTZMANN
    found = ptd.joint_inertia(tree, butane.make_system(), timestep, temperature=hot)
    assert found == pytest.approx([3.0 * own], rel=1e-6)
    cold = ptd.joint_inertia(tree, butane.make_system(), timestep, temperature=0.2 * hot)
    assert cold.tolist() == [0.0]  # its own is enough


@pytest.mark.parametrize("name", ["HOH", "WAT", "TIP3"])
def test_the_longest_step_with_water_is_six_femtoseconds(name):
    topology, system, bonds = app.Topology(), openmm.System(), openmm.HarmonicBondForce()
    residue = topology.addResidue(name, topology.addChain("A"))
    atoms = [topology.addAtom(n, app.Element.getBySymbol(n[0]), residue) for n in ("O", "H1", "H2")]
    for mass in (16.0, 1.0, 1.0):
        system.addParticle(mass)
    for k in (1, 2):
        topology.addBond(atoms[0], atoms[k])
        bonds.addBond(0, k, 0.1, 1000.0)
    system.addForce(bonds)
    x = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [-0.03, 0.095, 0.0]])
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x))
    assert not len(ptd.joint_inertia(tree, system, 0.006))
    with pytest.raises(ArgumentError, match=rf"for chain A, residue {name} 1: water turns as a whole.* at most 6 fs"):
        ptd.joint_inertia(tree, system, 0.0061)


def test_a_term_across_one_of_several_loops_is_across_a_loop(monkeypatch):
    """It has an atom near either end of the same bond that closes a loop."""
    found = []

    def record(tree, system, without=None):
        if without is not None:
            found.extend(without(term) for term in ((0, 2), (1, 3), (0, 1, 2), (0, 1), (2, 3), (0, 3)))
        return measure_stiffness(tree, system, without)

    monkeypatch.setattr(stiffness, "measure_stiffness", record)
    monkeypatch.setattr(kinetic_metric, "long_loops", lambda *tree: [({0}, {2}), ({1}, {3})])
    ptd.joint_inertia(butane.make_tree(), coupled_butane(), 0.01)
    assert found == [True, True, True, False, False, False]


def test_terms_across_a_loop_count_as_far_as_the_fastest_motion_needs_them(monkeypatch):
    """Here a bond between the ends. One share for all coordinates: slow enough, and a quarter less would not be."""
    topology, timestep = butane.make_topology(), 0.012
    chain = butane.make_tree()
    x = chain.positions(chain.reference.replace(torsions=[1.1]))
    system, local = coupled_butane(), coupled_butane()
    system.getForce(0).addBond(0, 3, float(np.linalg.norm(x[3] - x[0])), 60000.0)
    local.removeForce(2)  # the torsion has an atom at either end, too
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x), "all")
    monkeypatch.setattr(kinetic_metric, "long_loops", lambda *tree: [({0}, {3})])
    square = (8.0 * timestep / (2.0 * np.pi)) ** 2
    K, near = curvatures(tree, system), curvatures(tree, local)
    alone, shared = (stiffness_bound(csr_array(k)) * square for k in (near, K - near))
    stiff = np.concatenate([tree.stretch_index, tree.bend_index])
    found = ptd.joint_inertia(tree, system, timestep)
    stiff = stiff[shared[stiff] > 1e-3 * alone[stiff]]
    shares = (found - alone)[stiff] / shared[stiff]
    assert len(shares) > 2 and 0.001 < shares.mean() < 0.99 and np.ptp(shares) < 0.02 * shares.mean() + 1e-3

    def fastest(share):
        inertia = found.copy()
        inertia[stiff] = (alone + share * shared)[stiff]
        M = mass_matrix(tree.with_joint_inertia(inertia), tree.reference)
        places = tree.coordinate_dof
        return np.linalg.eigvals(np.linalg.inv(M)[np.ix_(places, places)] @ K).real.max() * square

    assert fastest(shares.mean()) < 1.01 < fastest(0.75 * shares.mean()) * 1.005


def test_the_smallest_share_is_found_within_a_fifth():
    for needed in (0.9, 0.3, 0.02, 2e-4):
        asked = []

        def enough(share, needed=needed, asked=asked):
            asked.append(share)
            return share >= needed

        assert needed <= _smallest_share(enough) <= 1.2 * needed and len(asked) < 12
    assert _smallest_share(lambda share: True) == 0.0
    assert _smallest_share(lambda share: False) == 1.0


@pytest.mark.parametrize("inertia", [[0.0, 0.0, 0.0], [0.5, 0.1, 2.0]])
def test_the_fastest_motion_is_the_largest_frequency_of_all(inertia):
    """Of M^-1 K with the whole mass matrix, in which the base answers too."""
    tree = ptd.bead_chain(6, 0.15, 1.9, [12.0, 14.0, 1.0, 16.0, 14.0, 1.0], torsion=[1.0, 2.0, -1.0])
    tree = tree.with_joint_inertia(inertia)
    K = np.array([[300.0, 40.0, -20.0], [40.0, 200.0, 90.0], [-20.0, 90.0, 500.0]])
    inverse = np.linalg.inv(mass_matrix(tree, tree.reference))
    places = tree.coordinate_dof
    squares = np.linalg.eigvals(inverse[np.ix_(places, places)] @ K).real
    assert fastest_motion(tree, csr_array(K)) == pytest.approx(squares.max(), rel=0.01)
    assert effective_inertia(tree) == pytest.approx(1.0 / np.diag(inverse)[places], rel=1e-9)


def test_torsions_that_hardly_move_are_named_with_the_slowest():
    """More than 100 Da nm^2; angles and bonds do not count."""
    tree = ptd.bead_chain(6, 0.15, 1.9, 12.0)
    assert slow_torsions(tree) == slow_torsions(tree.with_joint_inertia([100.0, 99.0, 0.0])) == []
    (said,) = slow_torsions(tree.with_joint_inertia([101.0, 50.0, 2500.0]))
    assert said.startswith(
        f"joint inertias all but stop 2 of 3 torsions, most of all {tree.coordinates[2]} (2500 Da nm^2)"
    )
    x = butane.make_tree().positions(butane.make_tree().reference.replace(torsions=[1.1]))
    soft = ptd.build_tree(ptd.Structure.from_openmm(butane.make_topology(), butane.make_system(), x), "all")
    inertia = np.full(soft.n_coordinates, 1e4)
    inertia[soft.torsion_index] = 1.0
    assert slow_torsions(soft.with_joint_inertia(inertia)) == []


def test_words_for_metrics():
    tree = ptd.bead_chain(6, 0.15, 1.9, 12.0).with_joint_inertia([1.0, 2.0, 3.0])
    assert [check_metric(word) for word in ("physical", "auto", None)] == ["physical", "auto", None]
    assert check_metric(np.ones(3)) is None
    with pytest.raises(ArgumentError, match="metric is 'fast', expected 'physical', 'auto' or an array"):
        check_metric("fast")
    assert not tree_with_metric(tree, "physical").joint_inertia.any()
    assert tree_with_metric(tree, [4.0, 5.0, 6.0]).joint_inertia.tolist() == [4.0, 5.0, 6.0]


def custom(kind, expression, *atoms):
    force = kind(expression)
    getattr(force, {3: "addAngle", 4: "addTorsion", 2: "addBond"}[len(atoms)])(*atoms)
    return force


def bonded_forces():
    """Yield forces of every kind, each with one term over the atoms of butane, and the atoms of that term."""
    bond, angle, torsion, rb = (
        openmm.HarmonicBondForce(), openmm.HarmonicAngleForce(), openmm.PeriodicTorsionForce(), openmm.RBTorsionForce(),
    )  # fmt: skip
    bond.addBond(0, 3, 0.3, 2000.0)
    angle.addAngle(0, 1, 3, 1.5, 300.0)
    torsion.addTorsion(0, 1, 2, 3, 2, 0.4, 20.0)
    rb.addTorsion(0, 1, 2, 3, 1.0, -7.0, 3.0, 9.0, -2.0, 4.0)
    compound = openmm.CustomCompoundBondForce(4, "300*(distance(p1,p4)-0.3)^2+70*cos(angle(p1,p2,p3))")
    compound.addBond([0, 1, 2, 3])
    yield bond, (0, 3)
    yield angle, (0, 1, 3)
    yield torsion, (0, 1, 2, 3)
    yield rb, (0, 1, 2, 3)
    yield compound, (0, 1, 2, 3)
    yield custom(openmm.CustomBondForce, "900*(r-0.3)^2", 0, 3), (0, 3)
    yield custom(openmm.CustomAngleForce, "150*(theta-1.5)^2", 0, 1, 3), (0, 1, 3)
    yield custom(openmm.CustomTorsionForce, "30*cos(theta-0.7)", 0, 1, 2, 3), (0, 1, 2, 3)


@pytest.mark.parametrize("index", range(8))
def test_curvatures_of_every_bonded_force(index):
    """All of them with their couplings, by differences of energies; the System keeps its force as it is."""
    force, atoms = list(bonded_forces())[index]
    assert list(stiffness.bonded_terms(force)) == [atoms]
    system = openmm.System()
    for _ in range(4):
        system.addParticle(butane.MASS)
    system.addForce(force)
    before = openmm.XmlSerializer.serialize(system)
    chain = butane.make_tree()
    x = chain.positions(chain.reference.replace(torsions=[1.1]))
    tree = ptd.build_tree(ptd.Structure.from_openmm(butane.make_topology(), system, x), "all")
    found, expected = measure_stiffness(tree, system).toarray(), curvatures(tree, system)
    assert np.abs(found - expected).max() < 2e-4 * np.abs(expected).max() > 1e-3
    assert np.array_equal(found, found.T)
    left = measure_stiffness(tree, system, lambda term: term == atoms).toarray()
    assert np.allclose(left, 0.0 if index < 4 else found)  # kinds without force constants stay
    assert np.array_equal(measure_stiffness(tree, system, lambda term: term == (9,)).toarray(), found)
    assert openmm.XmlSerializer.serialize(system) == before


def test_terms_of_other_forces_are_none():
    assert stiffness.bonded_terms(openmm.NonbondedForce()) is None
    assert stiffness.bonded_terms(openmm.CustomExternalForce("x")) is None


def test_switched_off_terms_keep_all_but_their_constants():
    expected = [([0, 3, 0.3], 1), ([0, 1, 3, 1.5], 1), ([0, 1, 2, 3, 2, 0.4], 1), ([0, 1, 2, 3], 6)]
    calls = ("getBondParameters", "getAngleParameters", "getTorsionParameters", "getTorsionParameters")
    for (force, atoms), (kept, n), get in zip(bonded_forces(), expected, calls, strict=False):
        assert stiffness.switch_off(force, lambda term: False) == set()
        assert stiffness.switch_off(force, lambda term, atoms=atoms: term == atoms) == {atoms}
        found = [getattr(value, "_value", value) for value in getattr(force, get)(0)]
        assert found == [*kept, *[0.0] * n]
    for force, _ in list(bonded_forces())[4:]:
        assert stiffness.switch_off(force, lambda term: True) == set()


def test_terms_of_virtual_sites_count_once():
    """A spring from atom 0 to a site that lies on atom 3, to which OpenMM hands its force."""
    topology, system = butane.make_topology(), coupled_butane()
    topology.addAtom("M", None, next(topology.residues()))
    site = system.addParticle(0.0)
    system.setVirtualSite(site, openmm.TwoParticleAverageSite(3, 3, 0.5, 0.5))
    spring = openmm.HarmonicBondForce()
    spring.addBond(site, 0, 0.1, 500.0)
    system.addForce(spring)
    chain = butane.make_tree()
    x = chain.positions(chain.reference.replace(torsions=[1.1]))
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, np.vstack([x, x[3]])), "rotor")
    assert tree.virtual_sites.tolist() == [4] and tree.n_coordinates == 1
    assert measure_stiffness(tree, system).toarray() == pytest.approx(curvatures(tree, system), rel=1e-3)


def test_both_torsions_of_a_map_couple():
    """CMAP terms have two torsions, phi and psi, which share three of five atoms."""
    force = openmm.CMAPTorsionForce()
    force.addMap(2, [0.0] * 4)
    force.addTorsion(0, 4, 1, 2, 3, 1, 2, 3, 0)
    assert list(stiffness.bonded_terms(force)) == [(0, 1, 2, 3, 4)]


def test_terms_that_are_switched_off_have_no_energy():
    """Of two torsions with six constants each, all of one become zero, and those of the other stay."""
    force, constants = openmm.RBTorsionForce(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    for first in (0, 1):
        force.addTorsion(first, first + 1, first + 2, first + 3, *constants)
    assert stiffness.switch_off(force, lambda term: 0 in term) == {(0, 1, 2, 3)}
    found = [[c._value for c in force.getTorsionParameters(i)[4:]] for i in range(2)]
    assert found == [[0.0] * 6, constants]
