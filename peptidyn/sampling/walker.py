"""`Walker`: one configuration of a System, on which Monte Carlo moves act.

Torsional moves see the configuration as a tree with soft coordinates, Cartesian moves as positions. After a Cartesian
move the tree keeps its topology and takes the new bond lengths, angles and rings as its reference geometry, in O(n),
when the next torsional move asks for it.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import openmm

from peptidyn.core.errors import ArgumentError, CheckpointError, ModelError
from peptidyn.core.units import BOLTZMANN, plain_array
from peptidyn.engine.context_vectors import read_forces
from peptidyn.engine.force_server import ForceServer, serve
from peptidyn.engine.kinetic_metric import check_metric, joint_inertia, metropolis_steps, tree_with_metric
from peptidyn.engine.simulation import find_platform
from peptidyn.engine.system_check import check_system
from peptidyn.integrators.mover import Mover
from peptidyn.io.virtual_sites import place_virtual_sites
from peptidyn.metric.fixman_potential import check_temperature
from peptidyn.model.hydrogen_mass import with_hydrogen_mass
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel

Checkpoint = dict[str, Any]
"""Everything that decides how a walker goes on: arrays, and the state of its random generator."""


class Walker:
    """A configuration in a Context of its own, and what moves need to change it.

    Parameters
    ----------
    tree : TreeModel
        Built with ``Structure.from_openmm(topology, system, positions)``, so that masses agree.
    system : openmm.System
        Flexible: without constraints, virtual sites and barostats.
    temperature : float or Quantity
        K.
    positions : (n_atoms, 3), nm, optional
        Where to start; the reference of the tree if not given. They become the reference geometry.
    hydrogen_mass : float or Quantity, optional
        Mass of hydrogens in the kinetic energies of the moves, Da. It does not change what is sampled.
    metric : {"physical", "auto"} or (n_coordinates,) array, optional
        Joint inertias in the kinetic energies of torsional moves: none; those with which they can make `timestep`; or
        given ones. Default those of the tree. They stay as they are, and do not change what is sampled.
    timestep : float or Quantity, optional
        Of the torsional moves, ps; needed for ``metric="auto"`` only.
    platform : openmm.Platform or str, optional
    properties : dict, optional
        Of the platform.
    seed : int, SeedSequence or Generator, optional

    Attributes
    ----------
    kT : float
        kJ/mol.
    rng : numpy Generator
    masses : (n_atoms,)
        Of the kinetic energies, Da.
    version : int
        Grows whenever the configuration changes; moves keep forces for as long as it does not.
    force_calls : int
        Evaluations of forces so far.
    """

    def __init__(
        self,
        tree: TreeModel,
        system: Any,
        temperature: Any,
        *,
        positions: Any = None,
        hydrogen_mass: Any = None,
        metric: Any = None,
        timestep: Any = None,
        platform: Any = None,
        properties: dict[str, str] | None = None,
        seed: Any = None,
    ):
        check_system(tree, system, tree.masses)
        tree = walker_tree(tree, system, temperature, positions, hydrogen_mass, metric, timestep)
        self.masses = tree.masses
        self._tree = tree
        self._mover = Mover(tree)
        self._geometry = tree.positions(tree.reference)
        self._cartesian: np.ndarray | None = None
        self.context = _make_context(system, tree.masses, platform, properties)
        self.rng = np.random.default_rng(seed)
        self.version = 0
        self.force_calls = 0
        self.kT = math.nan
        self.set_temperature(temperature)
        self.momenta_valid = False
        self._energy = math.nan
        self._potential = math.nan
        self._force = np.empty((tree.n_atoms, 3))
        if positions is not None:
            self.set_positions(positions)

    # ------------------------------------------------------------------ the configuration

    @property
    def temperature(self) -> float:
        """K."""
        return self.kT / BOLTZMANN

    def set_temperature(self, temperature: Any) -> None:
        """Go on at a temperature, K. Momenta stay as they are."""
        self.kT = BOLTZMANN * check_temperature(temperature)
        self.version += 1  # stored forces may hold U_F of the old temperature

    @property
    def tree(self) -> TreeModel:
        """The tree with the geometry of the present configuration."""
        return self.mover.tree

    @property
    def mover(self) -> Mover:
        """The configuration in soft coordinates. Momenta mean something only while `momenta_valid`."""
        if self._cartesian is not None:
            self._tree = self._tree.with_geometry(self._cartesian)
            self._geometry = self._cartesian
            self._mover = Mover(self._tree)
            self._cartesian = None
            self.momenta_valid = False
        return self._mover

    @property
    def q(self) -> np.ndarray:
        """The soft coordinates (n_coordinates,), rad, torsions between -pi and pi; a copy."""
        q, torsion = self.mover.q.copy(), self._tree.torsion_index
        q[torsion] -= 2.0 * np.pi * np.round(q[torsion] / (2.0 * np.pi))
        return q

    def positions(self) -> np.ndarray:
        """Return the positions (n_atoms, 3), nm; a copy."""
        return self._cartesian.copy() if self._cartesian is not None else self._mover.positions()

    def set_positions(self, positions: Any, energy: float = math.nan) -> None:
        """Go to Cartesian positions (n_atoms, 3), nm; hard coordinates take their values there.

        Parameters
        ----------
        positions : (n_atoms, 3), nm
        energy : float, kJ/mol, optional
            Potential energy there, if it is known already.
        """
        x = plain_array(positions)
        if x.shape != self._force.shape:
            raise ArgumentError(f"positions have shape {x.shape}, expected {self._force.shape}")
        if not np.isfinite(x).all():
            raise ModelError("the positions hold coordinates that are not finite numbers")
        if len(self._tree.virtual_sites):
            x = place_virtual_sites(self.context.getSystem(), x)
        self._cartesian = x
        self.changed(energy)

    def changed(self, energy: float = math.nan) -> None:
        """Note that the configuration is another one, with this potential energy (kJ/mol) if it is known."""
        self.version += 1
        self._energy = energy

    # ------------------------------------------------------------------ energies and forces

    def energy(self) -> float:
        """Return the potential energy V of the configuration, without U_F, kJ/mol."""
        if math.isnan(self._energy):
            self._energy = self.energy_at(self.positions())
        return self._energy

    def energy_at(self, x: np.ndarray) -> float:
        """Return the potential energy at positions (n_atoms, 3), nm; the configuration stays."""
        self.context.setPositions(x)
        self.force_calls += 1
        return self.context.getState(energy=True).getPotentialEnergy()._value

    def fixman_energy(self) -> float:
        """Return U_F at the temperature of the walker, kJ/mol."""
        return self.kT * self.mover.fixman_energy()

    def torsional_forces(self, mover: Mover, want_energy: bool) -> tuple[float, np.ndarray]:
        """Return V + U_F (kJ/mol) and the generalised forces (n_dof,) where `mover` is; what a `Stepper` asks for."""
        self.context.setPositions(mover.place())
        state = self.context.getState(forces=True, energy=want_energy)
        self.force_calls += 1
        torque = mover.load_forces(read_forces(state, self._force, self._tree.virtual_sites), self.kT)
        if not want_energy:
            return math.nan, torque
        self._potential = state.getPotentialEnergy()._value
        return self._potential + self.kT * mover.fixman_energy(), torque

    @cached_property
    def server(self) -> ForceServer | None:
        """Where compiled steps find forces; None if Python has to ask for them."""
        return serve(self._tree, self.context)

    @property
    def last_potential(self) -> float:
        """V that `torsional_forces` found last, kJ/mol."""
        return self._potential

    # ------------------------------------------------------------------ saving

    def checkpoint(self) -> Checkpoint:
        """Return what `restore` needs to continue bit for bit."""
        mover = self.mover
        return {
            "joint_inertia": self._tree.joint_inertia.copy(),
            "geometry": self._geometry.copy(),
            "q": mover.q.copy(),
            "base_position": mover.base_position.copy(),
            "base_rotation": mover.base_rotation.copy(),
            "momentum": mover.momentum.copy() if self.momenta_valid else np.zeros(self._tree.n_dof),
            "momenta_valid": self.momenta_valid,
            "rng": self.rng.bit_generator.state,
        }

    def restore(self, saved: Checkpoint) -> None:
        """Continue from what `checkpoint` returned; CheckpointError if its joint inertias are others."""
        if not np.array_equal(saved["joint_inertia"], self._tree.joint_inertia):
            raise CheckpointError(
                "the checkpoint was made with another kinetic metric (joint inertias), to which its momenta belong; "
                "make the walker with the metric of the checkpoint"
            )
        self._tree = self._tree.with_geometry(saved["geometry"])
        self._geometry = np.array(saved["geometry"])
        self._cartesian = None
        state = State.make(self._tree, saved["q"], saved["base_position"], saved["base_rotation"])
        self._mover = Mover(self._tree, state, saved["momentum"])
        self.momenta_valid = bool(saved["momenta_valid"])
        self.rng.bit_generator.state = saved["rng"]
        self.changed()


def walker_tree(
    tree: TreeModel,
    system: Any,
    temperature: Any,
    positions: Any,
    hydrogen_mass: Any,
    metric: Any,
    timestep: Any,
    steps_per_period: float | None = None,
) -> TreeModel:
    """Return the tree with the masses and joint inertias of a walker; the arguments are those of `Walker`.

    `steps_per_period` is that of ``metric="auto"``; None: as Metropolised dynamics needs it.
    """
    tree = with_hydrogen_mass(tree, hydrogen_mass)
    if check_metric(metric) != "auto":
        return tree if metric is None else tree_with_metric(tree, metric)
    if timestep is None:
        raise ArgumentError("metric='auto' follows from a time step; give timestep=, that of the torsional moves")
    start = tree if positions is None else tree.with_geometry(positions)
    period = metropolis_steps(start) if steps_per_period is None else steps_per_period
    inertia = joint_inertia(start, system, timestep, steps_per_period=period, temperature=temperature)
    return tree.with_joint_inertia(inertia)


def _make_context(system: Any, masses: np.ndarray, platform: Any, properties: dict[str, str] | None) -> Any:
    """Return a Context with the integrator of Cartesian moves: velocity Verlet with the masses of the moves."""
    system = openmm.XmlSerializer.clone(system)
    for i in reversed(range(system.getNumForces())):
        if isinstance(system.getForce(i), openmm.CMMotionRemover):
            system.removeForce(i)  # it would act within a trajectory, which then could not be run backwards
    integrator = openmm.CustomIntegrator(0.001)
    integrator.addPerDofVariable("inertia", 1.0)
    integrator.addComputePerDof("v", "v + 0.5*dt*f/inertia")
    integrator.addComputePerDof("x", "x + dt*v")
    integrator.addComputePerDof("v", "v + 0.5*dt*f/inertia")
    if isinstance(platform, str):
        platform = find_platform(platform)
    given = (system, integrator) if platform is None else (system, integrator, platform, properties or {})
    context = openmm.Context(*given)
    integrator.setPerDofVariableByName("inertia", [openmm.Vec3(m, m, m) for m in masses.tolist()])
    return context
