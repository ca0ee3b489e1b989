"""A few atoms written out by hand, as the plain table that the package reads."""

from __future__ import annotations

import numpy as np

from peptidyn.core.atoms import Atoms


def few_atoms(residues, bonds=(), chains=None, elements=None):
    """Return atoms and their positions, nm.

    `residues` lists (name, {atom name: place}); `chains` has a letter for each residue. Elements are first letters of
    names, unless `elements` says otherwise. Bonds are written as ``("0 C", "1 N")``: residue, and name of the atom.
    """
    letters = chains or "A" * len(residues)
    order = list(dict.fromkeys(letters))
    labels = [(r, name) for r, (_, places) in enumerate(residues) for name in places]
    number = {f"{r} {name}": k for k, (r, name) in enumerate(labels)}
    pairs = sorted(tuple(sorted(number[end] for end in bond)) for bond in bonds)
    atoms = Atoms(
        name=np.array([name for _, name in labels], dtype=str),
        element=np.array([(elements or {}).get(name, name[0]) for _, name in labels], dtype=str),
        residue=np.array([r for r, _ in labels], dtype=np.int64),
        residue_name=np.array([name for name, _ in residues], dtype=str),
        residue_id=np.array([str(r + 1) for r in range(len(residues))], dtype=str),
        residue_chain=np.array([order.index(letter) for letter in letters], dtype=np.int64),
        chain_id=np.array(order, dtype=str),
        bonds=np.array(pairs, dtype=np.int64).reshape(-1, 2),
        bond_order=np.zeros(len(pairs)),
    )
    places = [np.asarray(at, dtype=np.float64) for _, table in residues for at in table.values()]
    return atoms, np.array(places).reshape(-1, 3)
