"""Force fields and solvents by name: from a Topology to a System that torsion dynamics can drive.

OBC2 is built on OpenMM's native GBSAOBCForce. OpenMM's own ``implicit/obc2.xml`` makes a CustomGBForce with the same
parameters and the same energy, several times slower on the CPU platform.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.io.notes import some

IMPLICIT = ("obc2", "gbn2")
"""Implicit solvents, without cutoff."""

WATER_MODELS = ("tip3p", "tip3pfb", "spce", "opc3")
"""Explicit waters of three sites; those with virtual sites cannot be driven."""

EXPLICIT = "explicit"
"""The solvent of a prmtop, psf or top file that holds its own water, in its own box, with PME."""

SOLVENTS = (*IMPLICIT, "vacuum", *WATER_MODELS)

FORCE_FIELDS = {
    "amber14": "amber14-all.xml",
    "amber99sbildn": "amber99sbildn.xml",
    "amber03": "amber03.xml",
    "charmm36": "charmm36.xml",
}
"""Short names of force fields; any other name is taken as a file that OpenMM finds."""

_WATER_FILES = {
    "amber14": {name: f"amber14/{name}.xml" for name in WATER_MODELS},
    "amber99sbildn": {name: f"{name}.xml" for name in ("tip3p", "tip3pfb", "spce")},
    "amber03": {name: f"{name}.xml" for name in ("tip3p", "tip3pfb", "spce")},
    "charmm36": {"tip3p": "charmm36/water.xml", "spce": "charmm36/spce.xml"},
}
"""Where OpenMM keeps water (and ions) for each force field."""

CUTOFF = 1.0
"""Default cutoff (nm) of the direct-space part of PME."""

SOLVENT_DIELECTRIC = 78.5
"""Of water, as in OpenMM's implicit solvent files; the native force has 78.3 unless told."""


def make_system(
    topology: Any,
    solvent: str = "obc2",
    forcefield: str | Sequence[str] = "amber14",
    *,
    periodic: bool = False,
    cutoff: float = CUTOFF,
    rigid_water: bool = False,
    generators: Sequence[Callable[..., bool]] = (),
) -> Any:
    """Return an openmm.System without constraints for the atoms of `topology`.

    All bonded terms are in the System, those inside rigid units too; see `drop_rigid_terms`.

    Parameters
    ----------
    topology : openmm.app.Topology
        With hydrogens; with waters and a box for explicit solvent.
    solvent : {"obc2", "gbn2", "vacuum", "tip3p", "tip3pfb", "spce", "opc3"}
        An implicit solvent, without cutoff; none; or the water model of the waters in the topology, with PME.
    forcefield : str or sequence of str
        ``amber14`` (default) and the other names of `FORCE_FIELDS`, or files for openmm.app.ForceField; several as a
        sequence or separated by commas.
    periodic : bool
        PME with solvent="vacuum": for force field files that hold the water themselves.
    cutoff : float
        Of the direct-space part of PME, nm.
    rigid_water : bool
        Constrain the waters, for Cartesian minimisation; in torsion dynamics they are rigid anyway.
    generators : sequence of callables
        Template generators for residues that no file knows, e.g. ``GAFFTemplateGenerator(molecules=...).generator`` of
        openmmforcefields; see openmm.app.ForceField.registerTemplateGenerator.

    Returns
    -------
    openmm.System
    """
    from openmm import app

    if periodic and solvent in IMPLICIT:
        raise ArgumentError(f"PME and the implicit solvent {solvent} exclude each other; give solvent='vacuum'")
    field = load_force_field(solvent, forcefield, generators)
    periodic = periodic or solvent in WATER_MODELS
    if periodic:
        _check_box(topology, cutoff)
    try:
        system = field.createSystem(
            topology,
            nonbondedMethod=app.PME if periodic else app.NoCutoff,
            nonbondedCutoff=cutoff,
            constraints=None,
            rigidWater=rigid_water,
            removeCMMotion=False,
        )
    except ValueError as error:
        raise ModelError(undescribed(field, topology, error)) from error
    if solvent == "obc2":
        system.addForce(_native_obc2(topology, system))
    return system


def load_force_field(
    solvent: str, forcefield: str | Sequence[str], generators: Sequence[Callable[..., bool]] = ()
) -> Any:  # fmt: skip
    """Return the openmm.app.ForceField for a solvent and force field by name; see `make_system`."""
    from openmm import app

    if solvent not in SOLVENTS:
        raise ArgumentError(f"the solvent is {solvent!r}, expected one of {', '.join(SOLVENTS)}")
    names = _names(forcefield)
    files = [_file_name(name) for name in names]
    if solvent == "gbn2":
        files.append("implicit/gbn2.xml")
    elif solvent in WATER_MODELS and names[0] in FORCE_FIELDS:
        waters = _WATER_FILES[names[0]]
        if solvent not in waters:
            raise ArgumentError(
                f"the force field {names[0]} has no water {solvent!r}; it comes with {', '.join(waters)}"
            )
        files.append(waters[solvent])
    try:
        field = app.ForceField(*files)
    except (ValueError, FileNotFoundError) as error:
        raise ArgumentError(_unknown_force_field(files, error)) from error
    for generator in generators:
        field.registerTemplateGenerator(generator)
    return field


def undescribed(field: Any, topology: Any, error: Exception) -> str:
    """Return what to tell a user whose structure an openmm.app.ForceField has no parameters for."""
    unknown = [f"{r.name} {r.id.strip()} of chain {r.chain.id}" for r in field.getUnmatchedResidues(topology)]
    names = some(sorted(set(unknown), key=unknown.index), 3)
    reason = str(error).split("For more information")[0].strip().rstrip(".")
    return (
        f"the force field cannot describe this structure: it has no parameters for {names} ({reason}); leave such "
        "molecules out (select='protein'), add a force field file that knows them (forcefield='amber14,ligand.xml'), "
        "or have templates made by a generator of openmmforcefields (make_system with generators=)"
    )


def _names(forcefield: str | Sequence[str]) -> list[str]:
    if isinstance(forcefield, str):
        return [name.strip() for name in forcefield.split(",")]
    return list(forcefield)


def _check_box(topology: Any, cutoff: float) -> None:
    """Raise ModelError unless there is a box that is large enough for PME."""
    vectors = topology.getPeriodicBoxVectors()
    if vectors is None:
        raise ModelError("the structure has no periodic box, which PME needs; add one with water around it")
    width = min(vectors[i][i]._value for i in range(3))
    if width < 2.0 * cutoff:
        raise ModelError(
            f"the periodic box is {width:.2f} nm wide, less than twice the cutoff of {cutoff:g} nm; use a larger box "
            "or a smaller cutoff"
        )


def _file_name(name: str) -> str:
    return FORCE_FIELDS.get(name, name)


def _unknown_force_field(files: list[str], error: Exception) -> str:
    unknown = [name for name in files if not name.endswith(".xml")]
    near = difflib.get_close_matches(unknown[0], FORCE_FIELDS, n=1) if unknown else []
    hint = f"did you mean {near[0]}?" if near else f"known names are {', '.join(FORCE_FIELDS)}"
    reason = str(error).splitlines()[0]
    return f"cannot load the force field {' + '.join(files)} ({reason}); {hint}"


def _native_obc2(topology: Any, system: Any) -> Any:
    """Return a GBSAOBCForce with the charges of the System, mbondi2 radii and OBC screening factors."""
    import openmm
    from openmm.app.internal.customgbforces import GBSAOBC2Force

    charged = [force for force in system.getForces() if isinstance(force, openmm.NonbondedForce)]
    if len(charged) != 1:
        raise ModelError(
            f"the solvent obc2 needs a System with one NonbondedForce to take charges from, and this one has "
            f"{len(charged)}; use another force field, or solvent='vacuum'"
        )
    charged[0].setReactionFieldDielectric(1.0)
    force = openmm.GBSAOBCForce()
    force.setSolventDielectric(SOLVENT_DIELECTRIC)
    force.setSoluteDielectric(1.0)
    force.setNonbondedMethod(openmm.GBSAOBCForce.NoCutoff)
    for i, (radius, scale) in enumerate(GBSAOBC2Force.getStandardParameters(topology)):
        charge, _, _ = charged[0].getParticleParameters(i)
        force.addParticle(charge, radius, scale)
    return force
