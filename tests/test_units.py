"""Quantities become plain numbers in nm, ps, Da, kJ/mol, rad and K; finite numbers; tables on disk."""

from __future__ import annotations

import numpy as np
import pytest
from openmm import Vec3, unit

from peptidyn.core.checks import all_finite
from peptidyn.core.tables import write_csv
from peptidyn.core.units import ANGSTROM, BOLTZMANN, degrees, plain, plain_array


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        (15.0 * unit.angstrom, 1.5),
        (2.0 * unit.femtosecond, 0.002),
        (2.0 / unit.nanosecond, 0.002),
        (10.0 * unit.kilocalorie_per_mole, 41.84),
        (180.0 * unit.degree, np.pi),
        (300.0 * unit.kelvin, 300.0),
        (12.0 * unit.dalton, 12.0),
        (4.184 * unit.kilojoule_per_mole / unit.angstrom, 41.84),
        (7.5, 7.5),
    ],
)
def test_quantities_are_plain_numbers(quantity, number):
    assert plain(quantity) == pytest.approx(number, rel=1e-12)
    assert plain_array(quantity) == pytest.approx(number, rel=1e-12)


def test_what_is_no_quantity_stays_as_it_is():
    for value in (None, "text", [1, 2], np.ones(2)):
        assert plain(value) is value


def test_arrays_are_new_of_double_precision_and_ordered_by_rows():
    given = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    found = plain_array(given)
    assert found.flags.c_contiguous and np.array_equal(found, given)
    given[0, 0] = 9.0
    assert found[0, 0] == 0.0
    plain_rows = np.arange(3.0)
    assert plain_array(plain_rows) is not plain_rows and not np.shares_memory(plain_array(plain_rows), plain_rows)
    single = plain_array(np.ones(2, dtype=np.float32) * unit.angstrom)
    assert single.dtype == np.float64 and single == pytest.approx([0.1, 0.1])
    vectors = [Vec3(10.0, 0.0, 0.0), Vec3(0.0, 20.0, 5.0)] * unit.angstrom
    assert plain_array(vectors) == pytest.approx(np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.5]]))


def test_angles_are_given_in_degrees():
    assert degrees(90) == pytest.approx(np.pi / 2)
    assert degrees([180.0, -60.0]) == pytest.approx([np.pi, -np.pi / 3])
    assert degrees(90 * unit.degree) == pytest.approx(np.pi / 2)
    assert degrees(1.25 * unit.radian) == pytest.approx(1.25)
    with pytest.raises(TypeError):
        degrees(1.0 * unit.nanometer)


def test_constants():
    assert pytest.approx(unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin), rel=1e-6) == (
        BOLTZMANN
    )
    assert pytest.approx(1.380649e-23 * 6.02214076e23 / 1000, rel=1e-15) == BOLTZMANN  # by definition since 2019
    assert (1.0 * unit.angstrom).value_in_unit(unit.nanometer) == ANGSTROM


@pytest.mark.parametrize("shape", [(4,), (1, 2, 2)])
def test_one_number_that_is_not_finite_is_found_anywhere(shape):
    assert all_finite(np.full(shape, 1e308)) and all_finite(np.zeros((0, 2, 3)))
    for place in range(4):
        for value in (np.nan, np.inf, -np.inf):
            x = np.zeros(shape)
            x.reshape(-1)[place] = value
            assert not all_finite(x)


def test_tables_have_a_header_and_all_digits(tmp_path):
    file = tmp_path / "t.csv"
    write_csv(file, ("name", "value"), [("ä, b", 0.1 + 0.2), ("two", np.float64(1e-17)), ("three", None)])
    assert file.read_bytes().decode("utf-8").split("\r\n") == [
        "name,value", '"ä, b",0.30000000000000004', "two,1e-17", "three,", "",
    ]  # fmt: skip
