"""`TorsionSimulation`: an openmm.app.Simulation that minimises, thermalises and saves in torsion space."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import openmm
from openmm import app

from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.core.units import plain, plain_array
from peptidyn.engine import checkpoints
from peptidyn.engine.context_vectors import read_forces
from peptidyn.engine.minimisation import Minimum, Watch, minimise, minimise_cartesian
from peptidyn.engine.rigid_terms import lacks_rigid_terms
from peptidyn.engine.simulation_walker import SimulationWalker
from peptidyn.engine.torsion_integrator import TorsionIntegrator
from peptidyn.integrators.mover import Mover
from peptidyn.io.virtual_sites import place_virtual_sites


class TorsionSimulation(app.Simulation):
    """A Simulation of a System through a tree model.

    Everything an openmm.app.Simulation does works: step(), and the stock reporters. The simulation starts at the
    reference positions of the tree; context.setPositions moves it elsewhere.

    Parameters
    ----------
    topology : openmm.app.Topology
    system : openmm.System, or the name of an XML file
        Constraints must lie inside rigid units. Of barostats MonteCarloBarostat is honoured, with a heat bath.
    integrator : TorsionVerletIntegrator, TorsionLangevinIntegrator or TorsionGHMCIntegrator
    platform : openmm.Platform or str, optional
        OpenMM's fastest if not given.
    platformProperties : dict, optional
    state : str, optional
        Name of an XML file with a serialised openmm.State to start from.

    Attributes
    ----------
    minimum : Minimum or None
        Outcome of the last `minimize_torsions`.
    """

    def __init__(
        self,
        topology: Any,
        system: Any,
        integrator: Any,
        platform: Any = None,
        platformProperties: dict[str, str] | None = None,
        state: str | None = None,
    ):
        if not isinstance(integrator, TorsionIntegrator):
            raise ArgumentError(
                f"the integrator is a {type(integrator).__name__}, expected a TorsionVerletIntegrator, "
                "TorsionLangevinIntegrator or TorsionGHMCIntegrator; use openmm.app.Simulation for others"
            )
        if not hasattr(topology, "getNumAtoms"):
            raise ArgumentError(
                f"the topology is a {type(topology).__name__}, expected an openmm.app.Topology: a Structure has one as "
                "structure.topology"
            )
        if isinstance(platform, str):
            platform = find_platform(platform)
        super().__init__(topology, system, integrator, platform, platformProperties, state)
        integrator.bind(self.context)
        if state is None:
            self.context.setPositions(self.tree.positions(self.tree.reference))
        self.minimum: Minimum | None = None
        self._geometry: np.ndarray | None = None
        self._walker: SimulationWalker | None = None

    @property
    def tree(self) -> Any:
        """The tree model that is moved."""
        return self.integrator.tree

    @property
    def reference_geometry(self) -> np.ndarray | None:
        """Positions (n_atoms, 3), nm, last given to `use_geometry`; None while the tree is as it was built."""
        return self._geometry

    # ------------------------------------------------------------------ preparing

    def minimize_torsions(self, tolerance: Any = 1.0, max_iterations: int = 0, watch: Watch | None = None) -> float:
        """Minimise the potential energy over base poses and soft coordinates; return it, kJ/mol.

        U_F is not part of it. Velocities become zero.

        Parameters
        ----------
        tolerance : float or Quantity
            Largest component of the gradient at which to stop, kJ/mol/rad (kJ/mol/nm for translations). Platforms in
            single precision may stop a little earlier, when the energy no longer falls; see `minimum.converged`.
        max_iterations : int
            0 means as many as it takes.
        watch : callable, optional
            Called after every iteration with the energy, kJ/mol.
        """
        mover = self.integrator.lend_mover()
        self.minimum = minimise(mover, self._energy_and_torque, float(plain(tolerance)), max_iterations, watch)
        self.integrator.set_motion(self.minimum.state, np.zeros(self.tree.n_dof))
        return self.minimum.energy

    def _energy_and_torque(self, mover: Mover) -> tuple[float, np.ndarray]:
        x = mover.positions()
        self.context.setPositions(x)
        state = self.context.getState(energy=True, forces=True)
        force = read_forces(state, np.empty_like(x), self.tree.virtual_sites)
        return state.getPotentialEnergy()._value, mover.project(force)

    def minimizeEnergy(self, tolerance: Any = None, maxIterations: int = 0, reporter: Any = None) -> None:
        """Minimise in torsion space, so that scripts written for openmm.app.Simulation keep working.

        The tolerance of the Cartesian method has no counterpart; use `minimize_torsions` to set one, and
        `relax_geometry` to minimise in Cartesian coordinates.
        """
        if tolerance is not None or reporter is not None:
            raise ArgumentError(
                "minimizeEnergy minimises torsions here and takes no Cartesian tolerance or reporter; use "
                "minimize_torsions(tolerance=) in kJ/mol/rad"
            )
        self.minimize_torsions(max_iterations=maxIterations)

    def relax_geometry(self, tolerance: Any = 10.0, max_iterations: int = 0, watch: Watch | None = None) -> float:
        """Minimise in Cartesian coordinates, and keep the outcome as the reference geometry; return its energy.

        Bond lengths and angles relax too, and stay hard from then on at their new values. Populations depend on the
        reference geometry, so a raw experimental structure should be relaxed. Velocities become zero.

        Parameters
        ----------
        tolerance : float or Quantity
            Root mean square force at which to stop, kJ/mol/nm.
        max_iterations : int
            0 means as many as it takes.
        watch : callable, optional
            Called after every iteration with the energy, kJ/mol.
        """
        if lacks_rigid_terms(self.system):
            raise ModelError(
                "angles and torsions inside rigid units were dropped from this System, so nothing holds them in "
                "Cartesian coordinates; relax with the whole System first, and drop terms then"
            )
        energy = minimise_cartesian(self.context, float(plain(tolerance)), max_iterations, watch)
        self.use_geometry(self.context.getState(positions=True).getPositions(asNumpy=True))
        return energy

    def use_geometry(self, positions: Any) -> None:
        """Take positions (n_atoms, 3), nm, as reference geometry and as configuration; velocities become zero."""
        x = plain_array(positions)
        if not np.isfinite(x).all():
            raise ModelError("the new geometry holds coordinates that are not finite numbers")
        if len(self.tree.virtual_sites):
            x = place_virtual_sites(self.system, x)
        self.integrator.set_tree(self.tree.with_geometry(x))
        self._geometry = x
        self.integrator.set_motion(self.tree.reference, np.zeros(self.tree.n_dof))

    def set_velocities_to_temperature(self, temperature: Any) -> None:
        """Draw velocities of the soft coordinates and bases at a temperature, K."""
        self.integrator.set_velocities_to_temperature(temperature)

    # ------------------------------------------------------------------ moving

    def apply(self, move: Any) -> bool:
        """Make a Monte Carlo move where the simulation is; return whether it was accepted.

        Between stretches of Langevin or GHMC dynamics, which must have the Fixman potential. Time and step count stay;
        after an accepted move velocities are new.

        Parameters
        ----------
        move : TorsionMove or PivotMove
            Keep the object: it counts what is accepted.
        """
        if not hasattr(move, "tries"):
            raise ArgumentError(
                f"{getattr(move, '__name__', type(move).__name__)} is not a move that turns torsions; give a "
                "TorsionMove(...) or a PivotMove(...)"
            )
        if self._walker is None:
            self._walker = SimulationWalker(self.integrator, self.context)  # kept: moves know what to turn by it
        return self._walker.apply(move)

    # ------------------------------------------------------------------ saving

    def save_checkpoint(self, path: str | os.PathLike[str], extra: dict[str, Any] | None = None) -> None:
        """Write everything needed to continue exactly; the file appears only when it is complete.

        Parameters
        ----------
        path : str or path
        extra : dict, optional
            Anything that JSON holds, returned by `load_checkpoint`.
        """
        checkpoints.save(path, self.context, self.integrator, self._geometry, extra)

    def load_checkpoint(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Continue from a checkpoint of the same model and integrator settings; return its `extra`.

        A reference geometry that was relaxed before the checkpoint comes with it.
        """
        self._geometry, extra = checkpoints.load(path, self.context, self.integrator)
        return extra


def find_platform(name: str) -> Any:
    """Return an OpenMM platform by name; ArgumentError lists those there are."""
    there = [openmm.Platform.getPlatform(i).getName() for i in range(openmm.Platform.getNumPlatforms())]
    for known in there:
        if known.lower() == name.lower():
            return openmm.Platform.getPlatformByName(known)
    raise ArgumentError(f"there is no platform {name!r} here; available are {', '.join(there)}")
