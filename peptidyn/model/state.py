"""A configuration of a tree model: base poses and soft coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import plain_array

if TYPE_CHECKING:
    from peptidyn.model.tree import TreeModel


@dataclass(frozen=True, eq=False)
class State:
    """Where the molecules are. Immutable: `replace` makes a changed copy.

    Attributes
    ----------
    tree : TreeModel
        The model this is a configuration of.
    q : (n_coordinates,) float64
        Every soft coordinate in dof order: torsions and phases (rad, the dihedral of their four atoms), bends (rad,
        the angle of their three atoms) and bond lengths (nm).
    base_position : (n_molecules, 3) float64
        World position of every molecule's base origin, nm.
    base_rotation : (n_molecules, 4) float64
        Unit quaternions (w, x, y, z) that turn every base from the reference orientation to the world.
    """

    tree: TreeModel
    q: np.ndarray
    base_position: np.ndarray
    base_rotation: np.ndarray

    @classmethod
    def make(cls, tree: TreeModel, q: Any, base_position: Any, base_rotation: Any) -> State:
        """Check, copy and freeze the parts of a state."""
        parts = {
            "q": _frozen("q", q, (tree.n_coordinates,)),
            "base_position": _frozen("base_position", base_position, (tree.n_molecules, 3)),
            "base_rotation": _frozen("base_rotation", base_rotation, (tree.n_molecules, 4)),
        }
        off = np.abs(np.linalg.norm(parts["base_rotation"], axis=1) - 1.0)
        if off.size and off.max() > 1e-6:
            raise ArgumentError(f"base_rotation {int(off.argmax())} is not a unit quaternion; normalise it first")
        return cls(tree, **parts)

    def __setstate__(self, content: dict[str, Any]) -> None:
        self.__dict__.update(content)
        for array in (self.q, self.base_position, self.base_rotation):
            array.setflags(write=False)  # pickle forgets it

    @property
    def torsions(self) -> np.ndarray:
        """Torsions (n_torsions,) in rad, in the order of ``tree.torsions``; a copy."""
        return self.q[self.tree.torsion_index]

    @property
    def bends(self) -> np.ndarray:
        """Soft bond angles (n_bends,) in rad, in the order of ``tree.bends``; a copy."""
        return self.q[self.tree.bend_index]

    @property
    def phases(self) -> np.ndarray:
        """Soft phases (n_phases,) in rad; a copy."""
        return self.q[self.tree.phase_index]

    @property
    def stretches(self) -> np.ndarray:
        """Soft bond lengths (n_stretches,) in nm; a copy."""
        return self.q[self.tree.stretch_index]

    def replace(
        self,
        *,
        torsions: Any = None,
        bends: Any = None,
        phases: Any = None,
        stretches: Any = None,
        q: Any = None,
        base_position: Any = None,
        base_rotation: Any = None,
    ) -> State:
        """Return a copy with some parts changed.

        Parameters
        ----------
        torsions : (n_torsions,), rad, optional
        bends : (n_bends,), rad, optional
        phases : (n_phases,), rad, optional
        stretches : (n_stretches,), nm, optional
        q : (n_coordinates,), optional
            All soft coordinates at once; excludes the others.
        base_position : (n_molecules, 3), nm, optional
        base_rotation : (n_molecules, 4), unit quaternions, optional
        """
        parts = {"torsions": torsions, "bends": bends, "phases": phases, "stretches": stretches}
        if q is not None and any(value is not None for value in parts.values()):
            raise ArgumentError(f"give either q, or {', '.join(parts)}, not both")
        new = np.array(self.q if q is None else plain_array(q))
        for name, value in parts.items():
            if value is not None:
                places = self.tree.groups[name]
                new[places] = _frozen(name, value, places.shape)
        return State.make(
            self.tree,
            new,
            self.base_position if base_position is None else base_position,
            self.base_rotation if base_rotation is None else base_rotation,
        )

    def __repr__(self) -> str:
        return f"<State: {len(self.q)} soft coordinates, {len(self.base_position)} molecules>"


def _frozen(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = plain_array(value)
    if array.shape != shape:
        raise ArgumentError(f"{name} has shape {array.shape}, expected {shape}")
    if not np.isfinite(array).all():
        raise ArgumentError(f"{name} holds values that are not finite numbers")
    array.setflags(write=False)
    return array
