"""What the step map keeps, with real forces on the Reference platform: order, time reversal, volume, momenta, rigidity.

Every test runs on capped decaalanine, on a peptide with side chains, a proline and a disulfide that closes a loop, and
on soft bond angles.
"""

from __future__ import annotations

from functools import cache

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app, unit
from real_structures import DATA, load
from scipy.spatial.transform import Rotation

import peptidyn as ptd
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.systems import make_system
from peptidyn.solvers.dense import mass_matrix

KT = BOLTZMANN * 300


@cache
def decaalanine():
    structure = load(DATA / "ala10-helix.pdb")
    system = make_system(structure.topology, "vacuum")
    return ptd.Structure.from_openmm(structure.topology, system, structure.positions), system


@cache
def cystine():
    """A CPWKC loop closed by a disulfide: built open, then pulled together by its S-S bond in Cartesian coordinates."""
    peptide = ptd.build_peptide("ACPWKCA", phi=-120, psi=130)
    modeller = app.Modeller(peptide.topology, peptide.positions * unit.nanometer)
    modeller.delete([a for a in modeller.topology.atoms() if a.name == "HG" and a.residue.name == "CYS"])
    modeller.topology.addBond(*[a for a in modeller.topology.atoms() if a.name == "SG"])
    system = make_system(modeller.topology, "vacuum")
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(modeller.positions)
    openmm.LocalEnergyMinimizer.minimize(context, 1.0, 1000)
    x = context.getState(positions=True).getPositions(asNumpy=True)
    return ptd.Structure.from_openmm(modeller.topology, system, x), system


SYSTEMS = {
    "decaalanine": ("phi psi chi methyl", decaalanine),
    "disulfide": ("phi psi chi polar", cystine),
    "angles": ("phi psi chi omega angles", cystine),
}


@pytest.fixture(params=SYSTEMS)
def model(request):
    """Structure, System and tree."""
    soft, make = SYSTEMS[request.param]
    structure, system = make()
    return structure, system, ptd.build_tree(structure, soft)


def simulate(model, timestep, temperature=300.0, seed=1):
    structure, system, tree = model
    integrator = ptd.TorsionVerletIntegrator(tree, timestep, seed=seed)
    simulation = ptd.TorsionSimulation(structure.topology, system, integrator, "Reference")
    simulation.set_velocities_to_temperature(temperature)
    return simulation, integrator


def test_the_disulfide_is_closed():
    structure, _ = cystine()
    tree = ptd.build_tree(structure)
    ((i, j),) = tree.cut_bonds.tolist()
    assert {structure.atoms.name[i], structure.atoms.name[j]} == {"SG"}
    assert np.linalg.norm(structure.positions[i] - structure.positions[j]) == pytest.approx(0.204, abs=0.005)
    assert {"chi1", "chi4"} <= {t.kind for t in tree.torsions}
    assert any(bond.kind == "phi" for bond in tree.hard_bonds)  # of proline


def test_second_order(model):
    """The energy error over a fixed time falls with the square of the step: 2.0 +- 0.1."""
    errors = []
    for h in (0.002, 0.001, 0.0005):
        simulation, integrator = simulate(model, h, temperature=100.0)
        before, worst = integrator.total_energy(), 0.0
        for _ in range(8):
            simulation.step(round(0.004 / h))
            worst = max(worst, abs(integrator.total_energy() - before))
        errors.append(worst)
    orders = -np.diff(np.log2(errors))
    assert np.abs(orders - 2.0).max() < 0.1, errors


def test_reversible(model):
    """200 steps, momenta turned round, 200 steps: back at the start."""
    simulation, integrator = simulate(model, 0.002)
    start, momenta = integrator.motion()
    for _ in range(2):
        simulation.step(200)
        state, p = integrator.motion()
        integrator.set_motion(state, -p)
    end, p = integrator.motion()
    tree = model[2]
    assert np.abs(end.q - start.q).max() < 1e-9
    assert np.abs(tree.positions(end) - tree.positions(start)).max() < 1e-9
    assert np.abs(p - momenta).max() < 1e-9 * np.abs(momenta).max()


def test_momenta_are_conserved(model):
    """Linear and angular momentum of a free molecule, over 200 steps."""
    simulation, _ = simulate(model, 0.004)
    x, v = positions_and_velocities(simulation)
    masses = model[2].masses
    push = masses @ v
    turn = masses @ np.cross(x, v)
    simulation.step(200)
    x, v = positions_and_velocities(simulation)
    assert np.abs(masses @ v - push).max() < 1e-8 * np.abs(push).max()
    assert np.abs(masses @ np.cross(x, v) - turn).max() < 1e-8 * np.abs(turn).max()


def positions_and_velocities(simulation):
    state = simulation.context.getState(positions=True, velocities=True)
    return state.getPositions(asNumpy=True)._value, state.getVelocities(asNumpy=True)._value


def test_volume_is_preserved(model):
    """|ln det| of the Jacobian of one step of 4 fs, by fourth-order differences over all of phase space."""
    tree = model[2]
    simulation, integrator = simulate(model, 0.004)
    start, momenta = integrator.motion()
    n = tree.n_dof
    scale = np.ones(2 * n)
    scale[n:] = np.sqrt(KT * np.diag(mass_matrix(tree, start)))

    def image(offset):
        """Step from the start moved by `offset`: rotation vector, translation, q, momenta."""
        rotation = (Rotation.from_rotvec(offset[:3]) * turn_of(start)).as_quat()[[3, 0, 1, 2]]
        state = start.replace(
            q=start.q + offset[6:n], base_position=start.base_position + offset[3:6], base_rotation=rotation[None]
        )
        integrator.set_motion(state, momenta + offset[n:])
        simulation.step(1)
        return integrator.motion()

    middle, p = image(np.zeros(2 * n))

    def difference(offset):
        state, momentum = image(offset)
        turned = (turn_of(state) * turn_of(middle).inv()).as_rotvec()
        return np.concatenate(
            [turned, (state.base_position - middle.base_position)[0], state.q - middle.q, momentum - p]
        )

    jacobian = np.empty((2 * n, 2 * n))
    h = 1e-3
    for k in range(2 * n):
        e = np.zeros(2 * n)
        e[k] = h * scale[k]
        far_back, back, ahead, far_ahead = (difference(s * e) for s in (-2, -1, 1, 2))
        jacobian[:, k] = (8 * (ahead - back) - (far_ahead - far_back)) / (12 * h)
    sign, log_volume = np.linalg.slogdet(jacobian / scale[:, None])
    assert sign == 1 and abs(log_volume) < 1e-7


def turn_of(state):
    return Rotation.from_quat(state.base_rotation[0][[1, 2, 3, 0]])


# ---------------------------------------------------------------------------- rigidity


def hard_geometry(structure, tree, x):
    """Return all bond lengths, bond angles and omegas that the tree holds, at positions x."""
    cut = {tuple(sorted(pair)) for pair in tree.cut_bonds.tolist()}
    bonds = [tuple(sorted(pair)) for pair in structure.atoms.bonds.tolist() if tuple(sorted(pair)) not in cut]
    partners = {atom: [] for atom in range(structure.n_atoms)}
    for i, j in bonds:
        partners[i].append(j)
        partners[j].append(i)
    soft = {tuple(sorted((b.atoms[0], b.atoms[2]))) + (b.atoms[1],) for b in tree.bends}
    angles = [
        (i, j, k) for j, around in partners.items() for i in around for k in around
        if i < k and (i, k, j) not in soft
    ]  # fmt: skip
    omega, _ = mdtraj.compute_omega(structure.to_mdtraj())
    i, j = np.array(bonds).T
    lengths = np.linalg.norm(x[i] - x[j], axis=1)
    a, b, c = np.array(angles).T
    u, v = x[a] - x[b], x[c] - x[b]
    bends = np.arctan2(np.linalg.norm(np.cross(u, v), axis=1), (u * v).sum(axis=1))
    p, q, r, s = (x[column] for column in omega.T)
    n1, n2 = np.cross(q - p, r - q), np.cross(r - q, s - r)
    axis = (r - q) / np.linalg.norm(r - q, axis=1)[:, None]
    omegas = np.arctan2((np.cross(n1, n2) * axis).sum(axis=1), (n1 * n2).sum(axis=1))
    return lengths, bends, omegas


@pytest.mark.slow
@pytest.mark.parametrize("name", ["decaalanine", "disulfide"])
def test_nothing_hard_moves_in_1e5_steps(name):
    """Bonds, angles and omega to 1e-9 (nm, rad), in the bonded part of the force field: 10^5 cheap Langevin steps."""
    structure, whole = SYSTEMS[name][1]()
    system = openmm.XmlSerializer.deserialize(openmm.XmlSerializer.serialize(whole))
    for i in reversed(range(system.getNumForces())):
        if isinstance(system.getForce(i), openmm.NonbondedForce):
            system.removeForce(i)
    tree = ptd.build_tree(structure, "phi psi chi")
    integrator = ptd.TorsionLangevinIntegrator(tree, 300, 1.0, 0.004, seed=1)
    simulation = ptd.TorsionSimulation(structure.topology, system, integrator, "Reference")
    before = hard_geometry(structure, tree, structure.positions)
    simulation.step(100_000)
    x, _ = positions_and_velocities(simulation)
    assert np.abs(integrator.motion()[0].q - tree.reference.q).max() > 0.5  # it did move
    for was, now in zip(before, hard_geometry(structure, tree, x), strict=True):
        assert np.abs(np.angle(np.exp(1j * (now - was)))).max() < 1e-9
