"""What is said about a time step that could not be made: which coordinate, how far it would have moved, what to try."""

from __future__ import annotations

import butane
import numpy as np
import pytest

import peptidyn as ptd
from peptidyn.engine.failed_steps import explain_failed_step
from peptidyn.integrators.mover import Mover
from peptidyn.solvers.dense import mass_matrix

OVERLAP = "the forces are not finite numbers: atoms may overlap; minimise first"


def moving(tree, rates, base=0.0):
    """Return a mover whose soft coordinates change with these rates, and its base with another one, 1/ps."""
    v = np.full(tree.n_dof, base)
    v[tree.coordinate_dof] = rates
    return Mover(tree, momenta=mass_matrix(tree, tree.reference) @ v)


def flexible_butane():
    x = butane.make_tree().positions(butane.make_tree().reference.replace(torsions=[1.1]))
    return ptd.build_tree(ptd.Structure.from_openmm(butane.make_topology(), butane.make_system(), x), "all")


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_fastest_torsion_is_named_with_its_turn_and_a_step_for_twenty_degrees(sign):
    """3 rad/ps are 86 degrees in 0.5 ps, of which 20 take 116.4 fs; the base may turn faster."""
    tree = ptd.bead_chain(6, 0.15, 1.9, 12.0)
    mover, forces = moving(tree, [1.0, 3.0 * sign, -2.0], base=9.0), np.ones((6, 3))
    assert explain_failed_step(mover, forces, 0.5) == (
        f"the step is too large: {tree.coordinates[1]} would turn 86 degrees in one step of 500 fs; try 116.4 fs, or "
        "leave that rotor out of soft="
    )


def test_half_the_step_is_proposed_where_nothing_turns_far():
    """0.1 rad/ps are 6 degrees in 1 ps."""
    tree = ptd.bead_chain(5, 0.15, 1.9, 12.0)
    said = explain_failed_step(moving(tree, [0.05, 0.1]), np.ones((5, 3)), 1.0)
    assert f"{tree.coordinates[1]} would turn 6 degrees in one step of 1000 fs; try 500.0 fs, or" in said


def test_bond_lengths_do_not_turn():
    tree = flexible_butane()
    rates = np.zeros(tree.n_coordinates)
    rates[tree.stretch_index], rates[tree.bend_index], rates[tree.torsion_index] = 50.0, 1.0, 0.5
    rates[tree.bend_index[1]] = 2.0
    said = explain_failed_step(moving(tree, rates), np.zeros((4, 3)), 0.5)
    assert f"{tree.coordinates[tree.bend_index[1]]} would turn 57 degrees" in said


@pytest.mark.parametrize("kind", ["bend", "stretch"])
def test_coordinates_that_would_leave_their_range_are_named_with_its_end(kind):
    tree = flexible_butane()
    mover = moving(tree, np.ones(tree.n_coordinates))
    for index in {"bend": tree.bend_index, "stretch": tree.stretch_index}[kind].tolist():
        mover.out_of_range = index
        end = {"bend": "0 or 180 degrees", "stretch": "zero length"}[kind]
        assert explain_failed_step(mover, np.zeros((4, 3)), 0.002) == (
            f"{tree.coordinates[index]} would reach {end} in one step of 2 fs, where coordinates end; try a smaller "
            "step, or make that coordinate hard"
        )
    assert 0 in (*tree.bend_index, *tree.stretch_index)


def test_forces_and_momenta_that_are_no_numbers_come_first():
    tree = ptd.bead_chain(4, 0.15, 1.9, 12.0)
    forces = np.zeros((4, 3))
    assert OVERLAP != explain_failed_step(moving(tree, [1.0]), forces, 0.002)
    forces[2, 1] = np.nan
    assert explain_failed_step(moving(tree, [1.0]), forces, 0.002) == OVERLAP
    forces[2, 1] = np.inf
    assert explain_failed_step(moving(tree, [1.0]), forces, 0.002) == OVERLAP
    mover = moving(tree, [1.0])
    mover.momentum[-1] = np.nan
    assert explain_failed_step(mover, np.zeros((4, 3)), 0.002) == OVERLAP


def test_a_rigid_body_has_nothing_that_turns_too_far():
    tree = ptd.bead_chain(3, 0.15, 1.9, 12.0)
    assert tree.n_coordinates == 0 and explain_failed_step(Mover(tree), np.zeros((3, 3)), 0.002) == OVERLAP
