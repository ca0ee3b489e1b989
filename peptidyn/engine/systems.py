"""Force fields and solvents by name: from a Topology to a System that torsion dynamics can drive.

OBC2 is built on OpenMM's native GBSAOBCForce. OpenMM's own ``implicit/obc2.xml`` makes a CustomGBForce with the same
parameters and the same energy, several times slower on the CPU platform.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.io.composition import missing_atoms
from peptidyn.io.notes import some
from peptidyn.io.topology import atoms_from_topology

IMPLICIT = ("obc2", "gbn2")
"""Implicit solvents."""

FOUR_SITES = ("tip4pew", "tip4pfb", "tip4p2005", "opc")
"""Explicit waters with a virtual site, which their rigid bodies carry."""

WATER_MODELS = ("tip3p", "tip3pfb", "spce", "opc3", *FOUR_SITES)
"""Explicit waters."""

EXPLICIT = "explicit"
"""The solvent of a prmtop, psf or top file that holds its own water, in its own box, with PME."""

SOLVENTS = (*IMPLICIT, "vacuum", *WATER_MODELS)

FORCE_FIELDS = {
    "amber14": "amber14-all.xml",
    "amber19": "amber19-all.xml",
    "amber99sbildn": "amber99sbildn.xml",
    "amber03": "amber03.xml",
    "charmm36": "charmm36.xml",
}
"""Short names of force fields; any other name is taken as a file that OpenMM finds."""

_AMBER_WATERS = ("tip3p", "tip3pfb", "spce", "opc3", "tip4pew", "tip4pfb", "opc")

_WATER_FILES = {
    "amber14": {name: f"amber14/{name}.xml" for name in _AMBER_WATERS},
    "amber19": {name: f"amber19/{name}.xml" for name in _AMBER_WATERS},
    "amber99sbildn": {name: f"{name}.xml" for name in _AMBER_WATERS},
    "amber03": {name: f"{name}.xml" for name in _AMBER_WATERS},
    "charmm36": {
        "tip3p": "charmm36/water.xml",
        **{name: f"charmm36/{name}.xml" for name in ("spce", "tip4pew", "tip4p2005")},
    },
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
    cutoff: float | None = None,
    rigid_water: bool = False,
    generators: Sequence[Callable[..., bool]] = (),
) -> Any:
    """Return an openmm.System without constraints for the atoms of `topology`.

    All bonded terms are in the System, those inside rigid units too; see `drop_rigid_terms`.

    Parameters
    ----------
    topology : openmm.app.Topology
        With hydrogens; with waters and a box for explicit solvent.
    solvent : str
        An implicit solvent (``obc2``, ``gbn2``); none (``vacuum``); or one of `WATER_MODELS`, that of the waters in the
        topology, with PME. Waters of four sites have their virtual site in the topology; see
        openmm.app.Modeller.addExtraParticles.
    forcefield : str or sequence of str
        ``amber14`` (default) and the other names of `FORCE_FIELDS`, or files for openmm.app.ForceField; several as a
        sequence or separated by commas.
    periodic : bool
        PME with solvent="vacuum": for force field files that hold the water themselves.
    cutoff : float, optional
        nm. Of the direct-space part of PME, default `CUTOFF`; without PME, of all nonbonded forces, default none.
    rigid_water : bool
        Constrain the waters, for Cartesian minimisation; in torsion dynamics they are rigid anyway.
    generators : sequence of callables
        Template generators for residues that no file knows, e.g. ``GAFFTemplateGenerator(molecules=...).generator`` of
        openmmforcefields; see openmm.app.ForceField.registerTemplateGenerator.

    Returns
    -------
    openmm.System
    """
    from openmm import app, unit

    if periodic and solvent in IMPLICIT:
        raise ArgumentError(f"PME and the implicit solvent {solvent} exclude each other; give solvent='vacuum'")
    field = load_force_field(solvent, forcefield, generators)
    periodic = periodic or solvent in WATER_MODELS
    if periodic:
        cutoff = CUTOFF if cutoff is None else cutoff
        _check_box(topology, cutoff)
    system = _create(
        field, topology, constraints=None, rigidWater=rigid_water, removeCMMotion=False,
        nonbondedMethod=app.PME if periodic else app.NoCutoff if cutoff is None else app.CutoffNonPeriodic,
        nonbondedCutoff=(CUTOFF if cutoff is None else cutoff) * unit.nanometer,
    )  # fmt: skip
    if not periodic:
        leave_out_reaction_field(system)
    if solvent == "obc2":
        system.addForce(_native_obc2(topology, system, cutoff))
    return system


def leave_out_reaction_field(system: Any) -> None:
    """No water is beyond a cutoff but that of an implicit solvent."""
    import openmm

    for force in system.getForces():
        if isinstance(force, openmm.NonbondedForce):
            force.setReactionFieldDielectric(1.0)


def _create(field: Any, topology: Any, **options: Any) -> Any:
    """Return the System of an openmm.app.ForceField; ModelError, naming residues, if it has none."""
    try:
        return field.createSystem(topology, **options)
    except ValueError as error:
        raise ModelError(undescribed(field, topology, error)) from error
    except Exception as error:
        raise ModelError(
            f"the force field cannot be used ({_reason(error)}); its files do not fit together: give one force field, "
            "with its own files for water and ligands"
        ) from error


def load_force_field(
    solvent: str, forcefield: str | Sequence[str], generators: Sequence[Callable[..., bool]] = ()
) -> Any:  # fmt: skip
    """Return the openmm.app.ForceField for a solvent and force field by name; see `make_system`."""
    from openmm import app

    if solvent not in SOLVENTS:
        raise ArgumentError(f"the solvent is {solvent!r}, expected one of {', '.join(SOLVENTS)}")
    names = _names(forcefield)
    files = [FORCE_FIELDS.get(name, name) for name in names]
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
    except Exception as error:  # OpenMM raises many kinds: KeyError for an unknown type, plain Exception for a folder
        raise ArgumentError(_cannot_load(files, error)) from error
    for generator in generators:
        field.registerTemplateGenerator(generator)
    return field


def undescribed(field: Any, topology: Any, error: Exception) -> str:
    """Return what to tell a user whose structure an openmm.app.ForceField has no parameters for."""
    unmatched = field.getUnmatchedResidues(topology)
    atoms = atoms_from_topology(topology)
    names = some(list(dict.fromkeys(atoms.residue_label(r.index) for r in unmatched)), 3)
    numbers = {r.index for r in unmatched}
    lacking = [lack for lack in missing_atoms(atoms) if lack.residue in numbers]
    if lacking:
        shown = some([f"{atoms.residue_label(m.residue)} lacks {', '.join(m.heavy + m.hydrogens)}" for m in lacking], 3)
        return (
            f"the force field cannot describe this structure because atoms are missing: {shown}; complete it with "
            "load_structure(file, add_hydrogens=True), or leave these residues out with select="
        )
    reason = str(error).split("For more information")[0].strip().rstrip(".")
    if "extra site" in reason:
        return (
            f"the force field needs a virtual site in {names}; openmm.app.Modeller(topology, positions) adds it: "
            "addExtraParticles(force field)"
        )
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


def _reason(error: Exception) -> str:
    """Return what an error of OpenMM says in one line; a KeyError names the missing thing only."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return f"{text} is not defined" if isinstance(error, KeyError) else text


def _cannot_load(files: list[str], error: Exception) -> str:
    unknown = [name for name in files if not name.endswith(".xml")]
    near = difflib.get_close_matches(unknown[0], FORCE_FIELDS, n=1) if unknown else []
    reason = _reason(error)
    if near:
        hint = f"did you mean {near[0]}?"
    elif "Could not locate" in reason or unknown:
        hint = f"give the path of a file that exists, or one of the names {', '.join(FORCE_FIELDS)}"
    else:
        hint = "files that define the same things exclude each other: give one force field, and files that add to it"
    return f"cannot load the force field {' + '.join(files)} ({reason}); {hint}"


def _native_obc2(topology: Any, system: Any, cutoff: float | None) -> Any:
    """Return a GBSAOBCForce with the charges of the System, mbondi2 radii and OBC screening factors."""
    import openmm
    from openmm.app.internal.customgbforces import GBSAOBC2Force

    charged = [force for force in system.getForces() if isinstance(force, openmm.NonbondedForce)]
    if len(charged) != 1:
        raise ModelError(
            f"the solvent obc2 needs a System with one NonbondedForce to take charges from, and this one has "
            f"{len(charged)}; use another force field, or solvent='vacuum'"
        )
    force = openmm.GBSAOBCForce()
    force.setSolventDielectric(SOLVENT_DIELECTRIC)
    force.setSoluteDielectric(1.0)
    force.setNonbondedMethod(openmm.GBSAOBCForce.NoCutoff)
    if cutoff is not None:
        force.setNonbondedMethod(openmm.GBSAOBCForce.CutoffNonPeriodic)
        force.setCutoffDistance(cutoff)
    for i, (radius, scale) in enumerate(GBSAOBC2Force.getStandardParameters(topology)):
        charge, _, _ = charged[0].getParticleParameters(i)
        force.addParticle(charge, radius, scale)
    return force
