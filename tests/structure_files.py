"""Small structure files made from real ones, and what tests ask of the structures read from them."""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components


def atom_lines(path):
    return [line for line in path.read_text().splitlines() if line.startswith(("ATOM", "HETATM"))]


def residue_number(line):
    return int(line[22:26])


def write(tmp_path, lines, name="x.pdb"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def shifted(line, dx=0.0, dy=0.0, dz=0.0):
    x, y, z = (float(line[a : a + 8]) + d for a, d in ((30, dx), (38, dy), (46, dz)))
    return f"{line[:30]}{x:8.3f}{y:8.3f}{z:8.3f}{line[54:]}"


def hetatm(serial, name, residue, chain, number, xyz, element):
    field = f" {name:<3}" if len(element) == 1 and len(name) < 4 else f"{name:<4}"
    x, y, z = xyz
    return (
        f"HETATM{serial:5d} {field} {residue:>3} {chain}{number:4d}    {x:8.3f}{y:8.3f}{z:8.3f}"
        f"  1.00  0.00          {element:>2}"
    )


def deuterated(line, letter=" ", occupancy=1.0):
    name = f" D  {line[16:]}" if line[12:16] == " H  " else f"{line[12:16].replace('H', 'D', 1)}{line[16:]}"
    return f"{line[:12]}{name[:4]}{letter}{line[17:54]}{occupancy:6.2f}{line[60:76]} D"


def with_alternates(lines, number, letters, occupancies, residue_names=None, only=None):
    """Repeat the atoms of one residue under several letters, each copy shifted by 0.1 A more along z."""
    out = []
    for line in lines:
        if residue_number(line) != number or (only is not None and line[12:16].strip() not in only):
            out.append(line)
            continue
        for k, (letter, occupancy) in enumerate(zip(letters, occupancies, strict=True)):
            name = residue_names[k] if residue_names else line[17:20]
            copy = shifted(line, dz=0.1 * k)
            out.append(f"{copy[:16]}{letter}{name}{copy[20:54]}{occupancy:6.2f}{copy[60:]}")
    return out


def without_hydrogens(path):
    return [x for x in atom_lines(path) if x[76:78].strip() != "H"]


def mmcif_text(lines, *, chain=None, extra="", model="1"):
    """The atoms of PDB lines as an mmCIF file with author's and label names, as the archive writes them."""
    columns = (
        "group_PDB id type_symbol label_atom_id label_alt_id label_comp_id label_asym_id label_seq_id "
        "pdbx_PDB_ins_code Cartn_x Cartn_y Cartn_z occupancy auth_seq_id auth_asym_id pdbx_PDB_model_num"
    ).split()
    rows, numbers = [], {}
    for line in lines:
        polymer = line.startswith("ATOM")
        number = numbers.setdefault(line[21:27], len(numbers) + 1)
        name = line[12:16].strip()
        row = [
            line[:6].strip(), line[6:11].strip(), line[76:78].strip() or "?",
            f'"{name}"' if "'" in name else name, line[16].strip() or ".", line[17:20].strip(),
            "A" if polymer else "B", str(number) if polymer else ".", line[26].strip() or "?",
            line[30:38].strip(), line[38:46].strip(), line[46:54].strip(), line[54:60].strip(), line[22:26].strip(),
            chain or line[21], model,
        ]  # fmt: skip
        rows.append(" ".join(row))
    header = "\n".join(f"_atom_site.{c}" for c in columns)
    return f"data_X\n#\n{extra}loop_\n{header}\n" + "\n".join(rows) + "\n#\n"


BENZENE = [
    (f"C{k + 1}", (1.39 * np.cos(np.pi / 3 * k) + 40, 1.39 * np.sin(np.pi / 3 * k) + 40, 40.0), "C") for k in range(6)
] + [(f"H{k + 1}", (2.48 * np.cos(np.pi / 3 * k) + 40, 2.48 * np.sin(np.pi / 3 * k) + 40, 40.0), "H") for k in range(6)]


def kinds(structure):
    return Counter(note.kind for note in structure.notes)


def the_note(structure, kind):
    (note,) = structure.notes_of(kind)
    return note.text


def molecules(structure):
    n, bonds = structure.n_atoms, structure.atoms.bonds
    return connected_components(coo_matrix((np.ones(len(bonds)), bonds.T), shape=(n, n)), directed=False)


def named_bonds(structure):
    return {tuple(sorted((structure.atoms.label(i), structure.atoms.label(j)))) for i, j in structure.atoms.bonds}


def bonded_names(structure, residue):
    """The bonds inside one residue, as sets of names."""
    atoms = structure.atoms
    return {
        frozenset((str(atoms.name[i]), str(atoms.name[j])))
        for i, j in atoms.bonds.tolist()
        if atoms.residue[i] == atoms.residue[j] == residue
    }


def bond_lengths(structure):
    i, j = structure.atoms.bonds.T
    return np.linalg.norm(structure.positions[i] - structure.positions[j], axis=1)


def chiralities(structure):
    """Signed volume at every C-alpha that has a C-beta; positive for L."""
    x = structure.positions
    found = {}
    for r, at in enumerate(structure.atoms.residue_atoms):
        if {"N", "CA", "C", "CB"} <= at.keys():
            a, b, c = (x[at[n]] - x[at["CA"]] for n in ("N", "C", "CB"))
            found[r] = float(np.cross(a, b) @ c)
    return found
