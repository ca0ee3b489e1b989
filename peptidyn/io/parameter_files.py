"""Topology files that bring their force field: AMBER's prmtop, CHARMM's psf and GROMACS's top, by OpenMM's readers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peptidyn.core.errors import ArgumentError, StructureError
from peptidyn.core.units import plain_array

if TYPE_CHECKING:
    from openmm.app import Topology

AMBER, CHARMM, GROMACS = (".prmtop", ".parm7"), (".psf",), (".top",)

_BESIDE = {
    AMBER: (".inpcrd", ".rst7", ".crd", ".pdb"),
    CHARMM: (".crd", ".pdb"),
    GROMACS: (".gro", ".pdb"),
}
"""Endings of files with coordinates, which are looked for beside a topology file in this order."""

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class ParameterFile:
    """What a topology file and its coordinates hold.

    Attributes
    ----------
    name : str
        Of the topology file.
    topology : openmm.app.Topology
        With the periodic box, if there is one.
    positions : (n_atoms, 3) float64
        nm.
    create_system : callable
        Makes the System; takes what OpenMM's ``createSystem`` takes.
    """

    name: str
    topology: Topology
    positions: np.ndarray
    create_system: Callable[..., Any]


def is_parameter_file(path: PathLike | None) -> bool:
    """True if the name of a file is that of a topology with parameters: prmtop, parm7, psf or top."""
    return path is not None and Path(path).suffix.lower() in AMBER + CHARMM + GROMACS


def read_parameter_file(
    path: PathLike, coordinates: PathLike | None = None, parameters: Sequence[PathLike] = (),
    include: PathLike | None = None,
) -> ParameterFile:  # fmt: skip
    """Read a topology file with its parameters, and coordinates.

    Parameters
    ----------
    path : str or path
        ``.prmtop`` or ``.parm7`` (AMBER), ``.psf`` (CHARMM), ``.top`` (GROMACS).
    coordinates : str or path, optional
        inpcrd or rst7, crd, gro, or pdb; without it a file of the same name is looked for beside `path`.
    parameters : sequence of str or path
        CHARMM only: topology and parameter files (rtf, par, prm, str).
    include : str or path, optional
        GROMACS only: the folder that holds force fields; found by OpenMM if not given.
    """
    path = Path(path)
    if not path.is_file():
        raise StructureError(f"cannot read {path}: there is no such file")
    found = _coordinates_beside(path) if coordinates is None else Path(coordinates)
    if not found.is_file():
        raise StructureError(f"cannot read the coordinates {found}: there is no such file")
    if bool(parameters) != (path.suffix.lower() in CHARMM):
        raise ArgumentError(
            f"{path.name} needs its CHARMM parameter files, e.g. parameters=['charmm22.rtf', 'charmm22.par']"
            if not parameters
            else f"parameters= belongs to CHARMM's psf files; {path.name} holds its own"
        )
    if include is not None and path.suffix.lower() not in GROMACS:
        raise ArgumentError(f"include= belongs to GROMACS's top files, and {path.name} is none")
    try:
        positions, box = _read_coordinates(found)
        topology, create = _read_topology(path, parameters, include, box)
    except (ArgumentError, StructureError):
        raise
    except Exception as error:  # OpenMM's readers raise whatever their parsing meets
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = "; give the folder of GROMACS's force fields as include=" if "#include" in reason else ""
        raise StructureError(f"OpenMM cannot read {path.name} with {found.name}: {reason}{hint}") from error
    if len(positions) != topology.getNumAtoms():
        raise StructureError(
            f"{found.name} has {len(positions)} positions and {path.name} has {topology.getNumAtoms()} atoms; give the "
            "coordinates that belong to it"
        )
    return ParameterFile(path.name, topology, positions, create)


def _coordinates_beside(path: Path) -> Path:
    endings = next(names for kinds, names in _BESIDE.items() if path.suffix.lower() in kinds)
    for ending in endings:
        if path.with_suffix(ending).is_file():
            return path.with_suffix(ending)
    raise StructureError(
        f"{path.name} holds no coordinates, and there is no {path.stem}{f' or {path.stem}'.join(endings)} beside it; "
        "give coordinates="
    )


def _read_coordinates(path: Path) -> tuple[np.ndarray, Any]:
    """Return positions (n_atoms, 3), nm, and box vectors or None."""
    from openmm import app

    suffix = path.suffix.lower()
    if suffix == ".gro":
        gro = app.GromacsGroFile(str(path))
        box = gro.getPeriodicBoxVectors()
        empty = box is None or min(box[i][i]._value for i in range(3)) <= 0
        return plain_array(gro.positions), None if empty else box
    if suffix in (".pdb", ".ent"):
        pdb = app.PDBFile(str(path))
        return plain_array(pdb.positions), pdb.topology.getPeriodicBoxVectors()
    if suffix == ".crd" and _is_charmm_crd(path):
        return plain_array(app.CharmmCrdFile(str(path)).positions), None
    if suffix in (".inpcrd", ".rst7", ".crd", ".rst", ".ncrst", ".nc"):
        amber = app.AmberInpcrdFile(str(path))
        return plain_array(amber.positions), amber.boxVectors
    raise ArgumentError(
        f"cannot tell the format of {path.name}: coordinates are read from inpcrd, rst7, crd, gro and pdb files"
    )


def _is_charmm_crd(path: Path) -> bool:
    """CHARMM's coordinates begin with lines of remarks; AMBER's have one title line of any kind."""
    with open(path, encoding="latin-1") as file:
        return file.readline().startswith("*")


def _read_topology(
    path: Path, parameters: Sequence[PathLike], include: PathLike | None, box: Any
) -> tuple[Any, Callable[..., Any]]:  # fmt: skip
    """Return the Topology and what makes the System."""
    from openmm import app
    from openmm.app.internal.unitcell import computeLengthsAndAngles

    suffix = path.suffix.lower()
    if suffix in AMBER:
        amber = app.AmberPrmtopFile(str(path), periodicBoxVectors=box)
        return amber.topology, amber.createSystem
    if suffix in GROMACS:
        options = {} if include is None else {"includeDir": os.fspath(include)}
        top = app.GromacsTopFile(str(path), periodicBoxVectors=box, **options)
        return top.topology, top.createSystem
    psf = app.CharmmPsfFile(str(path))
    if box is not None:
        psf.setBox(*computeLengthsAndAngles(box))
    chosen = app.CharmmParameterSet(*(os.fspath(name) for name in parameters))

    def create(**options: Any) -> Any:
        return psf.createSystem(chosen, **options)

    return psf.topology, create
