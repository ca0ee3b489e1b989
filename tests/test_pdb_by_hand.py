"""PDB lines of a few atoms: residues and chains, TER, models, alternates, CONECT, columns, lines that are no atoms."""

from __future__ import annotations

import numpy as np
import pytest

from peptidyn.core.errors import StructureError
from peptidyn.core.units import plain_array
from peptidyn.io.pdb_format import read_pdb
from peptidyn.io.readers import load_structure


def line(name, residue="LIG", chain="A", number=1, xyz=(0.0, 0.0, 0.0), element=None, **columns):
    """An ATOM line; `columns` are code, altloc, occupancy (text of six characters) and record."""
    x, y, z = xyz
    element = name[0] if element is None else element
    field = f" {name:<3}" if len(name) < 4 else name
    return (
        f"{columns.get('record', 'ATOM'):<6}{columns.get('serial', 1):5d} {field}{columns.get('altloc', ' ')}"
        f"{residue:<4}{chain}{number:4d}{columns.get('code', ' ')}   {x:8.3f}{y:8.3f}{z:8.3f}"
        f"{columns.get('occupancy', '  1.00')}  9.00          {element:>2}"
    )


def read(*lines, model=0):
    return read_pdb("\n".join(lines), model, "x.pdb")


def residues(raw):
    """Residues as number with code, name, and the names of their atoms; one list for every chain."""
    return [
        [
            (residue.id + residue.insertionCode.strip(), residue.name, " ".join(a.name for a in residue.atoms()))
            for residue in chain.residues()
        ]
        for chain in raw.topology.chains()
    ]


def texts(raw):
    return [(note.kind, note.text) for note in raw.notes]


# ---------------------------------------------------------------------------- residues and chains


def test_what_tells_one_residue_from_the_next():
    first = [line("C1"), line("C2")]
    assert residues(read(*first, line("C3"), line("C4"))) == [[("1", "LIG", "C1 C2 C3 C4")]]
    for change in ({"number": 2}, {"code": "B"}, {"residue": "XYZ"}):
        number, name = {"number": ("2", "LIG"), "code": ("1B", "LIG"), "residue": ("1", "XYZ")}[next(iter(change))]
        found = residues(read(*first, line("C3", **change), line("C4", **change)))
        assert found == [[("1", "LIG", "C1 C2"), (number, name, "C3 C4")]]
    found = residues(read(*first, line("C1", chain="B"), line("C2", chain="B")))
    assert found == [[("1", "LIG", "C1 C2")], [("1", "LIG", "C1 C2")]]


@pytest.mark.parametrize("ter", ["TER", "TER       3      LIG A   1 ", "TER  ", "TER     x", " TER"])
def test_ter_ends_a_chain(ter):
    """Names and numbers may begin again behind it."""
    lines = [line("C1", xyz=(k, 0, 0)) for k in range(3)]
    found = read(lines[0], ter, lines[1], ter, lines[2])
    assert residues(found) == [[("1", "LIG", "C1")]] * 3 and found.positions[:, 0] == pytest.approx([0, 0.1, 0.2])
    assert found.file_names == ["LIG"] * 3 and found.notes == []


def test_ter_behind_an_atom_that_is_left_out():
    """The last line of the chain is a second location, or the first of two; the next chain begins behind it."""
    for occupancies in (("  0.70", "  0.30"), ("  0.30", "  0.70")):
        lines = [line("C1"), *(line("C2", altloc=a, occupancy=o) for a, o in zip("AB", occupancies, strict=True))]
        found = read(*lines, "TER", line("O1", number=2), line("O2", number=3), "TER", line("S1", number=4))
        assert residues(found) == [
            [("1", "LIG", "C1 C2")],
            [("2", "LIG", "O1"), ("3", "LIG", "O2")],
            [("4", "LIG", "S1")],
        ]


def test_the_second_location_may_stand_behind_the_rest_of_the_chain():
    """It belongs to the residue of its number in this chain, not to that in the chain before."""
    other = {"altloc": "B", "occupancy": "  0.20"}
    lines = [
        line("C1", altloc="A", occupancy="  0.80"),
        line("C2"),
        line("O1", number=2),
        line("C1", xyz=(1, 0, 0), **other),
        "TER",
        line("C1", xyz=(2, 0, 0), altloc="A", occupancy="  0.80"),
        line("C2", xyz=(3, 0, 0)),
        line("O1", number=2, xyz=(4, 0, 0)),
        line("C1", xyz=(5, 0, 0), **other),
    ]
    found = read(*lines)
    assert residues(found) == [[("1", "LIG", "C1 C2"), ("2", "LIG", "O1")]] * 2
    assert found.positions[:, 0] == pytest.approx([0, 0, 0, 0.2, 0.3, 0.4])
    assert texts(found)[0][1].startswith("alternate locations chosen by occupancy in 2 residues: ")


@pytest.mark.parametrize("second", [{"code": "B"}, {"chain": "B"}, {"number": 2}])
def test_every_residue_has_its_own_choice(second):
    """A of the first and B of the next, whatever tells them apart; by the mean of both, A or B would be in both."""
    first = [
        line("C1", altloc=a, occupancy=o, xyz=(k, 0, 0)) for k, (a, o) in enumerate((("A", "  0.60"), ("B", "  0.40")))
    ]
    other = [
        line("C1", altloc=a, occupancy=o, xyz=(k + 2, 0, 0), **second)
        for k, (a, o) in enumerate((("A", "  0.30"), ("B", "  0.70")))
    ]
    assert read(*first, *other).positions[:, 0] == pytest.approx([0.0, 0.3])
    assert read(*other, *first).positions[:, 0] == pytest.approx([0.3, 0.0])
    plain = [line("C9"), *first, line("O9"), line("C9", **second), *other, line("O9", **second)]
    assert read(*plain).positions[[1, 4], 0] == pytest.approx([0.0, 0.3])


def test_an_atom_with_a_letter_and_without_is_one():
    """The line without a letter counts as one of the locations, wherever in its residue it stands."""
    other = {"altloc": "B", "xyz": (1, 0, 0)}
    for occupancy, kept in (("  0.30", 0.0), ("  1.00", 0.0)):
        found = read(line("C1"), line("C2"), line("C1", occupancy=occupancy, **other))
        assert residues(found) == [[("1", "LIG", "C1 C2")]] and found.positions[0, 0] == kept
    found = read(line("C1", occupancy="  0.20"), line("C2"), line("C1", occupancy="  0.80", **other))
    assert sorted(found.positions[:, 0]) == pytest.approx([0.0, 0.1]) and found.topology.getNumAtoms() == 2


def test_the_same_atom_at_the_same_place_behind_ter_is_another():
    found = read(line("C1"), "TER", line("C1"))
    assert residues(found) == [[("1", "LIG", "C1")], [("1", "LIG", "C1")]] and found.notes == []


def test_residues_of_other_names_have_their_own_size():
    """An ion with the number of the ligand before it is an ion: the nitrogen of a ring is not alone."""
    found = read(line("C1"), line("NA", "NA", element="  "), line("C1", "XYZ"))
    assert [atom.element.symbol for atom in found.topology.atoms()] == ["C", "Na", "C"]
    assert residues(found) == [[("1", "LIG", "C1"), ("1", "NA", "NA"), ("1", "XYZ", "C1")]]


def test_two_residues_at_one_site_are_alternatives():
    """Also with a letter for the first only; the name that is left is that of the file."""
    lines = [
        line("N", "SER", altloc="A", occupancy="  0.40"),
        line("OG", "SER", altloc="A", occupancy="  0.40"),
        line("N", "HSD", altloc="B", occupancy="  0.60"),
        line("CG", "HSD", altloc="B", occupancy="  0.60"),
        line("N", "ALA", number=2),
    ]
    found = read(*lines)
    assert residues(found) == [[("1", "HIS", "N CG"), ("2", "ALA", "N")]] and found.file_names == ["HSD", "ALA"]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("  0.30", "  0.70", 1),
        ("      ", "  0.90", 0),  # nothing means fully occupied
        ("  0.90", "      ", 1),
        ("  0.00", "  0.10", 1),
        ("  xxxx", "  0.90", 0),
    ],
)
def test_occupancies(first, second, kept):
    lines = [line("C1", altloc=a, occupancy=o, xyz=(k, 0, 0)) for k, (a, o) in enumerate((("A", first), ("B", second)))]
    assert read(*lines).positions[:, 0] == pytest.approx([0.1 * kept])


def test_waters_may_be_numbered_anew():
    """Many waters have numbers that repeat; but a residue whose atoms stand in two places is an error."""
    waters = [line(name, "HOH", number=n) for n in (1, 2, 1, 2) for name in ("O", "H1", "H2")]
    assert residues(read(*waters)) == [[("1", "HOH", "O H1 H2"), ("2", "HOH", "O H1 H2")] * 2]
    apart = [line("N", "ALA"), line("CA", "GLY", number=2), line("CB", "ALA")]
    with pytest.raises(StructureError, match=r"x\.pdb lists the atoms of chain A, residue ALA 1 in two places"):
        read(*apart)
    with pytest.raises(StructureError, match="lists the atoms of residue ALA 1 in two places"):
        read(*(f"{one[:21]} {one[22:]}" for one in apart))
    with pytest.raises(StructureError, match="lists the atoms of chain A, residue ALA 1C in two places"):
        read(*(line(name, residue, number=n, code=c) for name, residue, n, c in (
            ("N", "ALA", 1, "C"), ("CA", "GLY", 2, " "), ("CB", "ALA", 1, "C"))))  # fmt: skip
    read(apart[0], apart[1], line("CB", "ALA", code="C"))
    read(apart[0], apart[1], "TER", apart[2])


# ---------------------------------------------------------------------------- models


def models(*parts, records=True):
    """Models of single atoms at x = 0, 1, 2 ... A; each part is what follows the atom."""
    lines = []
    for k, after in enumerate(parts):
        lines += [f"MODEL     {k + 1:4d}"] if records else []
        lines += [line("C1", xyz=(k, 0, 0)), *after]
    return lines


@pytest.mark.parametrize("end", ["ENDMDL", "END", None])
def test_models_end_in_several_ways(end):
    """By ENDMDL, by END alone, or where the next MODEL begins."""
    lines = models(*[[end] if end else []] * 3, records=end != "END")
    for k in range(3):
        found = read(*lines, model=k)
        assert found.positions == pytest.approx(np.array([[0.1 * k, 0.0, 0.0]]))
        assert texts(found) == [("models", f"x.pdb holds 3 models; this is model {k}, counted from 0")]
    with pytest.raises(StructureError, match=r"x\.pdb has no model 3: it holds 3 models"):
        read(*lines, model=3)


def test_chains_of_a_model_are_ended_by_its_own_ter():
    """A chain ended in one of two models only, or between them."""
    pair = [line("C1"), line("C2", number=2)]
    lines = ["MODEL        1", *pair, "ENDMDL", "TER", "MODEL        2", pair[0], "TER", pair[1], "TER", "ENDMDL"]
    assert [len(chain) for chain in residues(read(*lines))] == [2]
    assert [len(chain) for chain in residues(read(*lines, model=1))] == [1, 1]
    three = [*pair, line("O1", number=3)]
    lines = ["MODEL        1", *three, "ENDMDL", "MODEL        2", *three[:2], "TER", three[2], "ENDMDL"]
    assert [len(chain) for chain in residues(read(*lines))] == [3]
    assert [len(chain) for chain in residues(read(*lines, model=1))] == [2, 1]
    lines = ["MODEL        1", three[0], "TER", *three[1:], "ENDMDL", "MODEL        2", *three, "ENDMDL"]
    assert [len(chain) for chain in residues(read(*lines, model=1))] == [3]


# ---------------------------------------------------------------------------- other records


def test_bonds_of_conect_records():
    lines = [line(f"C{k}", xyz=(2.0 * k, 0, 0), serial=10 + k, record="HETATM") for k in range(3)]
    raw = read(*lines, "CONECT   10   11", "CONECT   12   11", "END")
    bonds = {frozenset((bond[0].index, bond[1].index)) for bond in raw.topology.bonds()}
    assert bonds == {frozenset((0, 1)), frozenset((1, 2))}
    assert list(read(*lines).topology.bonds()) == []


@pytest.mark.parametrize(
    ("angles", "box"),
    [
        ((90, 90, 90), [[2, 0, 0], [0, 3, 0], [0, 0, 4]]),
        ((60, 90, 90), [[2, 0, 0], [0, 3, 0], [0, 1, np.sqrt(12)]]),
        ((90, 60, 90), [[2, 0, 0], [0, 3, 0], [0, 0, np.sqrt(12)]]),
        ((90, 90, 60), [[2, 0, 0], [0.5, 1.5 * np.sqrt(3), 0], [0, 0, 4]]),
    ],
)
def test_the_cell_becomes_the_reduced_box(angles, box):
    """c is 2 nm along b for alpha of 60 degrees, 2 nm along a for beta; b is 1.5 nm along a for gamma."""
    cell = "CRYST1   20.000   30.000   40.000" + "".join(f"{angle:7.2f}" for angle in angles) + " P 1           1"
    raw = read(cell, line("C1"))
    found = plain_array(raw.topology.getPeriodicBoxVectors())
    assert np.abs(np.abs(found) - box).max() < 1e-6
    short = cell[:33] + "  90.00  90.00"
    with pytest.raises(StructureError, match=r"x\.pdb, line 2: the unit cell cannot be read from 'CRYST1"):
        read("REMARK", short, line("C1"))


@pytest.mark.parametrize("place", range(6))
def test_every_number_of_a_cell_counts(place):
    """One that is zero stands for no cell; one that is too large, or no number, is refused."""
    values = [20.0, 30.0, 40.0, 90.0, 90.0, 90.0]

    def cell(value):
        texts = [f"{x:{9 if k < 3 else 7}.2f}" for k, x in enumerate(values)]
        texts[place] = f"{value:>{9 if place < 3 else 7}}"
        return "CRYST1" + "".join(texts)

    assert read(cell("0.00"), line("C1")).topology.getPeriodicBoxVectors() is None
    assert read(cell("50.00"), line("C1")).topology.getPeriodicBoxVectors() is not None
    with pytest.raises(StructureError, match=r"x\.pdb, line 1: the unit cell .* cannot be"):
        read(cell("1e7"), line("C1"))
    with pytest.raises(StructureError, match=r"x\.pdb, line 1: the unit cell cannot be read"):
        read(cell("x"), line("C1"))


def test_lines_that_are_no_atoms():
    """Records with numbers in the columns of coordinates are none; other lines that have them are named."""
    numbers = "   1.000000  0.000000  0.000000        0.00000"
    known = [
        *(f"{name}{row} {numbers}" for name in ("SCALE", "ORIGX", "MTRIX") for row in (1, 2, 3)),
        *(f"{name}{row}{line('C1')[6:]}" for name in ("SCALE", "ORIGX", "MTRIX") for row in (1, 2, 3)),
        f"REMARK 350{line('C1')[10:]}",
        f"ANISOU{line('C1')[6:]}",
    ]
    assert read(*known, line("C1")).notes == []
    damaged = f"AT0M  {line('C7')[6:]}"
    found = read(line("C1"), damaged, f"HE?ATM{line('C8')[6:]}", "HEADER    1.000  2.000  3.000")
    expected = "2 lines with coordinates left out that are no atoms: 'AT0M      1  C7  LIG A   1'; 'HE?ATM    1  C8"
    ((kind, text),) = texts(found)
    assert kind == "skipped" and text.startswith(expected) and found.topology.getNumAtoms() == 1
    assert read(line("C1"), f"AT0M  {line('C7')[6:38]} no number").notes == []


def test_atoms_that_are_listed_again():
    """The same atom at the same place is one; at another place, or of another name, it is not the same."""
    lines = [line("C1"), line("C2", xyz=(1.5, 0, 0)), line("C1"), line("C2", xyz=(1.5, 0, 0)), line("C1")]
    found = read(*lines)
    label = "chain A, residue LIG 1, atom "
    text = f"3 lines left out that repeat an atom at the same place: {label}C1; {label}C2; {label}C1"
    assert texts(found) == [("skipped", text)] and residues(found) == [[("1", "LIG", "C1 C2")]]
    assert read(line("C1"), line("O1"), line("C1", number=2)).topology.getNumAtoms() == 3
    with pytest.raises(StructureError, match=r"x\.pdb lists atom C1 of chain A, residue LIG 1 more than once"):
        read(line("C1"), line("C2"), line("C1", xyz=(1, 0, 0)))


# ---------------------------------------------------------------------------- columns


def test_elements():
    """Of the element column, or of the name; nitrogens of rings may have a name like that of sodium."""
    blank = {"element": "  "}
    lines = [line("CA", **blank), line("C1", **blank), line("N1", number=2), line("O", "HOH", number=3, **blank)]
    found = read(*lines)
    assert [atom.element.symbol for atom in found.topology.atoms()] == ["C", "C", "N", "O"]
    assert texts(found) == [("guessed-elements", "3 atoms without an element in the file: it was taken from the name")]
    ring = [line("NA", "HEM", **blank), line("C1", "HEM", **blank)]
    assert [a.element.symbol for a in read(*ring).topology.atoms()] == ["N", "C"]
    assert [a.element.symbol for a in read(line("NA", "NA", **blank)).topology.atoms()] == ["Na"]
    stated = [line("NA", "HEM", element="NA"), line("C1", "HEM")]
    assert [a.element.symbol for a in read(*stated).topology.atoms()] == ["Na", "C"]
    sodium = [f"{line('NA', 'XYZ', **blank)[:12]}NA  {line('NA', 'XYZ', **blank)[16:]}", line("C1", "XYZ")]
    assert [a.element.symbol for a in read(*sodium).topology.atoms()] == ["Na", "C"]


def test_names_of_four_letters_become_standard_ones():
    found = read(line("O", "TIP3", "W"), line("N", "NALA", "B"), line("C1", "LIG", "B", 2))
    assert [(name, c) for chain in residues(found) for _, name, c in chain] == [
        ("HOH", "O"),
        ("ALA", "N"),
        ("LIG", "C1"),
    ]
    assert found.file_names == ["TIP3", "NALA", "LIG"]
    assert [chain.id for chain in found.topology.chains()] == ["W", "B"]


def test_a_large_residue_with_the_name_of_a_water_is_none():
    """By the atoms that are kept: six atoms at two locations each are still a water."""
    names = ["O", "H1", "H2", "M", "L1", "L2"]
    letters = [
        line(n, "OPC", altloc=a, element="H", occupancy=o) for n in names for a, o in (("A", "  0.6"), ("B", "  0.4"))
    ]
    assert [name for chain in residues(read(*letters)) for _, name, _ in chain] == ["HOH"]
    lipid = [line(f"C{k}", "OPC") for k in range(7)]
    assert [name for chain in residues(read(*lipid)) for _, name, _ in chain] == ["OPC"]


@pytest.mark.parametrize("length", [53, 45, 40, 20])
def test_lines_that_end_too_early(length):
    with pytest.raises(StructureError, match=r"x\.pdb, line 2: the line ends before its coordinates do"):
        read("REMARK", line("C1", xyz=(1.111, 2.222, 3.333))[:length])
    assert read("REMARK", line("C1", xyz=(1.111, 2.222, 3.333))[:54]).positions[0] == pytest.approx(
        [0.1111, 0.2222, 0.3333]
    )


@pytest.mark.parametrize("start", [30, 38, 46])
def test_coordinates_that_are_no_numbers(start):
    damaged = line("C1")[:start] + "  1.2.3 " + line("C1")[start + 8 :]
    with pytest.raises(StructureError, match=r"line 1: the coordinates '.*1\.2\.3.*' of atom C1 in residue LIG A   1"):
        read(damaged)


def test_the_file_as_a_structure(tmp_path):
    """Bonds of CONECT, chains ended by TER, the names of the file: all reach the structure."""
    lines = [line(f"C{k}", xyz=(2.0 * k, 0, 0), serial=10 + k, record="HETATM") for k in range(3)]
    path = tmp_path / "x.pdb"
    path.write_text("\n".join([*lines[:2], "TER", lines[2], "CONECT   10   11", "END", ""]))
    structure = load_structure(path)
    assert structure.atoms.bonds.tolist() == [[0, 1]] and structure.atoms.chain_id.tolist() == ["A", "A"]
