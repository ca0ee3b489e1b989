"""The plan of `fixman-points`: which atoms carry which coordinates, and in which order the hard ones are eliminated.

Everything here depends on the tree alone, not on the configuration, and is done once per tree; O(n).

**Coordinates.** An atom is placed in the rigid unit nearest the root that holds it (the far atom of a soft bond lies
on the axis, so it is placed with the parent unit). Every unit gets a *triple*: three of its atoms, not on one line. Two
of them (one, at an opened angle) lie on the joint's axes and are placed with the parent unit; the others are the unit's
*carriers*: their nine (six, three) coordinates are the soft ones of the joint and hard ones for the rest. All other
atoms of the unit have three hard coordinates each: where they are in the frame of the triple. That is a Z-matrix with
the triple as the reference atoms of bond, angle and torsion, and makes 3 coordinates per atom of a molecule.

**Blocks.** The coordinates of the carriers of a unit, or of one other atom, are a *block*. Its rows dq/dx touch its own
atoms and the reference atoms of one frame: the triple, or for carriers a frame of the parent unit. Rows of later atoms
never touch... so the matrix of all rows is block triangular and its determinant a product over blocks.

**Fronts.** Blocks are eliminated from the leaves to the root. What remains of H22 couples them through few atoms, the
*front*: those that eliminated rows touched and rows still to come will touch. A front is built from what earlier ones
left, from atoms not touched before, or both. An atom touched by one block only needs no place in it.
"""
