"""Presets: what is soft, which kinetic metric goes with it, how large the time step is, and what is then sampled.

They form a dial from the rigid model to the flexible force field. The more is soft, the more of the force field's
distribution is sampled, and the more depends on the metric: joint inertias slow stiff coordinates down, so that the
step stays large (`peptidyn.engine.kinetic_metric`).
"""

from __future__ import annotations

from dataclasses import dataclass

from peptidyn.model.soft import BENDS, HEAVY, TORSIONS, parse_soft


@dataclass(frozen=True)
class Preset:
    """A model by name.

    Attributes
    ----------
    soft : str
        Soft coordinates, as words.
    metric : {"physical", "auto"}
        Joint inertias: none, or those that the time step needs.
    langevin, ghmc : float
        Default time steps with these inertias up to 300 K, fs; the second one is for all Metropolised dynamics.
    physical : float
        Default time step without joint inertias, fs.
    distribution : str
        What is sampled, in words.
    """

    soft: str
    metric: str
    langevin: float
    ghmc: float
    physical: float
    distribution: str


# Steps of Langevin dynamics: averages on capped decaalanine stay right at 24 fs too, but in crowded molecules atoms
# that meet at such steps end a run now and then. Metropolised steps reject that; theirs accept nine proposals of ten.
# benchmarks/kinetic_metric.py measures them, docs/timestep.md lists them.
PRESETS = {
    "torsions": Preset(
        "phi psi chi", "physical", 8.0, 8.0, 8.0,
        "the rigid model's: bonds, angles and omega are fixed at the reference geometry",
    ),
    "angles": Preset(
        "phi psi chi omega angles", "auto", 16.0, 24.0, 4.0,
        "backbone angles and omega as in the force field, the rest fixed at the reference geometry",
    ),
    "heavy": Preset(
        "heavy", "auto", 16.0, 24.0, 1.0,
        "bond lengths and hydrogens fixed at the reference geometry, everything else as in the force field",
    ),
    "flexible": Preset("all", "auto", 16.0, 16.0, 0.5, "the force field's own: nothing is fixed"),
}  # fmt: skip
"""From the rigid model, the default, to the flexible force field."""

_QUICK = (
    ("torsions", frozenset({*TORSIONS, "omega", "amide", "methyl"})),
    ("angles", frozenset({*BENDS, "polar"})),
    ("heavy", frozenset(HEAVY)),
)
"""Kinds of soft coordinates that have the time step of a preset; all others have that of `flexible`."""


def preset_for_step(soft: str) -> Preset:
    """Return the preset whose time steps suit soft coordinates that were given as words."""
    kinds = parse_soft(soft)
    for name, quick in _QUICK:
        kinds = kinds - quick
        if not kinds:
            return PRESETS[name]
    return PRESETS["flexible"]
