"""Force fields and implicit solvents by name: from a Topology to a System that torsion dynamics can drive.

OBC2 is built on OpenMM's native GBSAOBCForce. OpenMM's own ``implicit/obc2.xml`` makes a CustomGBForce with the same
parameters and the same energy, several times slower on the CPU platform.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from peptidyn.errors import ArgumentError, ModelError

SOLVENTS = ("obc2", "gbn2", "vacuum")

FORCE_FIELDS = {
    "amber14": "amber14-all.xml",
    "amber99sbildn": "amber99sbildn.xml",
    "amber03": "amber03.xml",
    "charmm36": "charmm36.xml",
}
"""Short names of force fields; any other name is taken as a file that OpenMM finds."""

SOLVENT_DIELECTRIC = 78.5
"""Of water, as in OpenMM's implicit solvent files; the native force has 78.3 unless told."""


def make_system(
    topology: Any, solvent: str = "obc2", forcefield: str | Sequence[str] = "amber14", *, periodic: bool = False
) -> Any:
    """Return an openmm.System without constraints for the atoms of `topology`.

    All bonded terms stay in the System, those inside rigid units too: they add a constant to the energy.

    Parameters
    ----------
    topology : openmm.app.Topology
        With hydrogens.
    solvent : {"obc2", "gbn2", "vacuum"}
        Implicit solvents, without cutoff.
    forcefield : str or sequence of str
        ``amber14`` (default) and the other names of `FORCE_FIELDS`, or files for openmm.app.ForceField.
    periodic : bool
        PME for a box of explicit solvent; needs solvent="vacuum" and a force field that knows the water.

    Returns
    -------
    openmm.System
    """
    from openmm import app

    if solvent not in SOLVENTS:
        raise ArgumentError(f"the solvent is {solvent!r}, expected one of {', '.join(SOLVENTS)}")
    if periodic and solvent != "vacuum":
        raise ArgumentError(f"PME and the implicit solvent {solvent} exclude each other; give solvent='vacuum'")
    files = [_file_name(name) for name in ([forcefield] if isinstance(forcefield, str) else forcefield)]
    if solvent == "gbn2":
        files.append("implicit/gbn2.xml")
    try:
        field = app.ForceField(*files)
    except (ValueError, FileNotFoundError) as error:
        raise ArgumentError(_unknown_force_field(files, error)) from error
    try:
        system = field.createSystem(
            topology,
            nonbondedMethod=app.PME if periodic else app.NoCutoff,
            constraints=None,
            rigidWater=False,
            removeCMMotion=False,
        )
    except ValueError as error:
        raise ModelError(f"the force field {' + '.join(files)} cannot describe this structure: {error}") from error
    if solvent == "obc2":
        system.addForce(_native_obc2(topology, system))
    return system


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
