"""Units: the one place where quantities become plain numbers.

Inside peptidyn everything is float64 in the self-consistent MD system: nm, ps, Da, kJ/mol, rad, K.
At the public border an OpenMM ``Quantity`` is accepted wherever a number is, and converted here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BOLTZMANN = 0.008314462618153241
"""Gas constant in kJ/mol/K (CODATA 2018): kT for one mole in the units used here."""

ANGSTROM = 0.1
"""One angstrom in nm."""


def plain(value: Any) -> Any:
    """Return `value` as a plain number or array in MD units.

    Quantities (anything with ``value_in_unit_system``) are converted to nm, ps, Da, kJ/mol, rad, K;
    everything else is returned unchanged.
    """
    if hasattr(value, "value_in_unit_system"):
        from openmm import unit

        return value.value_in_unit_system(unit.md_unit_system)
    return value


def plain_array(value: Any) -> np.ndarray:
    """Return `value` as a new C-contiguous float64 array in MD units."""
    return np.array(plain(value), dtype=np.float64, order="C")


def degrees(value: Any) -> Any:
    """Return an angle given in degrees (plain number) or as a Quantity, in radians.

    A Quantity that is not an angle raises TypeError.
    """
    if hasattr(value, "value_in_unit"):
        from openmm import unit

        return value.value_in_unit(unit.radian)
    return np.deg2rad(value)
