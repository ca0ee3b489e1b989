"""`load_system`: what other programs prepared, as a structure and a System for torsion dynamics.

Files are read by OpenMM: AMBER's prmtop, CHARMM's psf, GROMACS's top. Objects of ParmEd and OpenFF Interchange are
taken by what they can do, so that neither package is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openmm
from openmm.app import CutoffNonPeriodic

from peptidyn.core.errors import ArgumentError, ModelError, StructureError
from peptidyn.core.residues import is_water
from peptidyn.core.units import plain_array
from peptidyn.engine.systems import CUTOFF, EXPLICIT, IMPLICIT, leave_out_reaction_field
from peptidyn.io.parameter_files import PathLike, is_parameter_file, read_parameter_file
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure
from peptidyn.io.topology import atoms_from_topology


@dataclass(frozen=True, eq=False)
class LoadedSystem:
    """A structure and the forces that came with it.

    Attributes
    ----------
    structure : Structure
        With the masses and virtual sites of the System; for `build_tree`.
    system : openmm.System
        Waters are constrained, which their rigid bodies are anyway.
    """

    structure: Structure
    system: Any

    @property
    def topology(self) -> Any:
        """The openmm.app.Topology."""
        return self.structure.topology

    @property
    def positions(self) -> Any:
        """Positions (n_atoms, 3), nm."""
        return self.structure.positions


def load_system(
    source: Any,
    coordinates: PathLike | None = None,
    *,
    parameters: PathLike | Sequence[PathLike] = (),
    include: PathLike | None = None,
    solvent: str | None = None,
    cutoff: float | None = None,
    **options: Any,
) -> LoadedSystem:
    """Load a system that another program has prepared, with its own parameters.

    Parameters
    ----------
    source : str, path or object
        ``.prmtop`` or ``.parm7``, ``.psf``, ``.top``; or a ParmEd Structure, or an OpenFF Interchange.
    coordinates : str or path, optional
        inpcrd or rst7, crd, gro, or pdb; without it a file of the same name is looked for beside `source`.
    parameters : path or sequence of paths
        CHARMM only: topology and parameter files (rtf, par, prm, str).
    include : str or path, optional
        GROMACS only: the folder that holds force fields; found by OpenMM if not given.
    solvent : {"explicit", "vacuum", "obc2", "gbn2"}, optional
        The water in the box of the file, with PME; none; or an implicit solvent with the radii of the file. By default
        explicit if there is water in a box, and none otherwise. Without explicit water a box is ignored.
    cutoff : float, optional
        nm. Of the direct-space part of PME, 1 by default; without PME, of all nonbonded forces, none by default.
    **options
        For OpenMM's ``createSystem``; they win over what is chosen here.

    Returns
    -------
    LoadedSystem

    Examples
    --------
    >>> loaded = ptd.load_system("protein.prmtop", "protein.inpcrd")
    >>> tree = ptd.build_tree(loaded.structure)
    """
    if hasattr(source, "to_openmm") and hasattr(source, "to_openmm_topology"):
        return _from_interchange(source, coordinates)
    if not isinstance(source, str | os.PathLike):
        topology, positions, create = _parts(source, coordinates)
        name = type(source).__name__
    else:
        if not is_parameter_file(source):
            raise ArgumentError(
                f"{source} is no prmtop, parm7, psf or top file; load structures with load_structure(), and make "
                "their forces with make_system()"
            )
        given = [parameters] if isinstance(parameters, str | os.PathLike) else list(parameters)
        file = read_parameter_file(source, coordinates, given, include)
        topology, positions, create, name = file.topology, file.positions, file.create_system, file.name
    chosen = {**_options(topology, solvent, cutoff, name), "rigidWater": True, "removeCMMotion": False, **options}
    system = _create(create, chosen, name)
    if chosen["nonbondedMethod"] is CutoffNonPeriodic and "nonbondedMethod" not in options:
        leave_out_reaction_field(system)
    _check_radii(system, name)
    structure = Structure.from_openmm(topology, system, positions, name=name)
    return LoadedSystem(structure, system)


def load_any_structure(
    path: PathLike,
    coordinates: PathLike | None = None,
    parameters: Sequence[PathLike] = (),
    include: PathLike | None = None,
    **options: Any,
) -> Structure:
    """Return the structure in a file of any kind that is read: pdb, cif, or those of `load_system`.

    `options` are those of `load_structure`, for pdb and cif files.
    """
    if is_parameter_file(path):
        file = read_parameter_file(path, coordinates, parameters, include)
        system = _create(file.create_system, {"constraints": None, "rigidWater": True}, file.name)  # without cutoff
        return Structure.from_openmm(file.topology, system, file.positions, name=file.name)
    if coordinates is not None or parameters or include is not None:
        raise ArgumentError(
            f"coordinates=, parameters= and include= belong to prmtop, psf and top files, and {Path(path).name} is none"
        )
    return load_structure(path, **options)


def _options(topology: Any, solvent: str | None, cutoff: float | None, name: str) -> dict[str, Any]:
    """Return the options of createSystem that a solvent means."""
    from openmm import app, unit

    box = topology.getPeriodicBoxVectors()
    water = bool(is_water(atoms_from_topology(topology)).any())
    if solvent is None:
        solvent = EXPLICIT if box is not None and water else "vacuum"
    if solvent == EXPLICIT:
        if box is None:
            raise ModelError(f"{name} has no periodic box, which solvent='explicit' needs; give solvent='obc2'")
        cutoff = CUTOFF if cutoff is None else cutoff
        width = min(box[i][i]._value for i in range(3))
        if width < 2.0 * cutoff:
            raise ModelError(
                f"the periodic box of {name} is {width:.2f} nm wide, less than twice the cutoff of {cutoff:g} nm; "
                "give a smaller cutoff="
            )
        return {"nonbondedMethod": app.PME, "nonbondedCutoff": cutoff * unit.nanometer, "constraints": None}
    if solvent not in ("vacuum", *IMPLICIT):
        raise ArgumentError(
            f"the solvent is {solvent!r} and {name} brings its own water; give 'explicit', 'vacuum', 'obc2' or 'gbn2'"
        )
    if box is not None and water:
        raise ArgumentError(
            f"{name} is a box with water, and the solvent is {solvent}; solvent='explicit' simulates the box with PME"
        )
    topology.setPeriodicBoxVectors(None)
    implicit = {"obc2": app.OBC2, "gbn2": app.GBn2}.get(solvent)
    near = {"nonbondedMethod": CutoffNonPeriodic, "nonbondedCutoff": (cutoff or CUTOFF) * unit.nanometer}
    return {
        **({"nonbondedMethod": app.NoCutoff} if cutoff is None else near), "constraints": None,
        **({} if implicit is None else {"implicitSolvent": implicit}),
    }  # fmt: skip


def _create(create: Callable[..., Any], options: dict[str, Any], name: str) -> Any:
    try:
        return create(**options)
    except Exception as error:  # readers of OpenMM and ParmEd raise many kinds for parameters that are missing
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"OpenMM cannot make a System of {name}: {reason}") from error


def _check_radii(system: Any, name: str) -> None:
    """Raise ModelError if a file without radii is to be simulated in implicit solvent."""
    for force in system.getForces():
        if isinstance(force, openmm.GBSAOBCForce):
            radii = [force.getParticleParameters(i)[1]._value for i in range(force.getNumParticles())]
            if min(radii) <= 0:
                raise ModelError(
                    f"{name} has no radii for implicit solvent; write them into it (mbondi2, by tleap or ParmEd's "
                    "changeRadii), or give solvent='vacuum'"
                )


def _parts(source: Any, coordinates: Any) -> tuple[Any, Any, Callable[..., Any]]:
    """Return topology, positions and createSystem of an object such as a ParmEd Structure."""
    topology, create = getattr(source, "topology", None), getattr(source, "createSystem", None)
    if topology is None or create is None:
        raise ArgumentError(
            f"load_system was given a {type(source).__name__}; expected a prmtop, psf or top file, a ParmEd Structure "
            "or an OpenFF Interchange. For a Topology, a System and positions use Structure.from_openmm()"
        )
    positions = coordinates if coordinates is not None else getattr(source, "positions", None)
    if positions is None:
        raise StructureError(f"the {type(source).__name__} holds no positions; give them as coordinates=")
    return topology, positions, create


def _from_interchange(source: Any, coordinates: Any) -> LoadedSystem:
    """Return the System and the structure of an OpenFF Interchange; its positions have units of pint."""
    system, topology = source.to_openmm(), source.to_openmm_topology()
    positions = coordinates if coordinates is not None else source.positions
    if positions is None:
        raise StructureError("the Interchange holds no positions; give them as coordinates=")
    if hasattr(positions, "m_as"):
        positions = positions.m_as("nanometer")
    return LoadedSystem(Structure.from_openmm(topology, system, plain_array(positions), name="Interchange"), system)
