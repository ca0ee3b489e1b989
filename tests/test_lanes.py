"""Lanes of the kernels: both implementations do what numpy does, agree with each other, and are kept apart."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from peptidyn.core import jit
from peptidyn.kernels import lanes_plain, lanes_vector

ROOT = Path(__file__).parents[1]
INTERNALS = re.compile(
    r"\bllvmlite\b|\b(from|import) numba\.|\bnumba\.(core|extending|np|typed|misc)\b|\.py_func\b|\._cache\b"
)


def run(code: str, *arguments: str, **environment: str) -> str:
    """Return what a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_internals_of_numba_are_used_in_four_files():
    """Elsewhere a new release of numba can change nothing but what it documents."""
    found = {
        path.relative_to(ROOT / "peptidyn").as_posix()
        for path in (ROOT / "peptidyn").rglob("*.py")
        if INTERNALS.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"core/jit.py", "kernels/lanes_vector.py", "kernels/compiling.py", "kernels/foreign.py"}


# ---------------------------------------------------------------------------- against numpy


def uncompiled(module):
    """Return a module whose njit does nothing: what its functions say in Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "njit", lambda function: function)
        return SimpleNamespace(**runpy.run_path(module.__file__))


@pytest.fixture(
    params=[lanes_vector, uncompiled(lanes_plain), pytest.param(lanes_plain, marks=pytest.mark.slow)],
    ids=["vector", "plain, as Python", "plain"],
)
def lanes(request):
    return request.param


def rows_kernel(lanes):
    """Return a kernel that uses everything there is for rows, for arrays with and without lanes."""
    zero, at, put_at, plus, all_above = lanes.zero, lanes.at, lanes.put_at, lanes.plus, lanes.all_above
    get, get3, get6, put, put3, put6 = lanes.get, lanes.get3, lanes.get6, lanes.put, lanes.put3, lanes.put6
    add3, add6 = lanes.add3, lanes.add6

    @lanes.njit
    def kernel(x, y, out, above):
        a, b, c = get3(x, 0, 1)
        d, e, f, g, h, i = get6(x, 1, 0)
        put(out, 0, 0, a * b - c / d)
        put3(out, 0, 1, abs(e), -f, plus(g, h, i))
        put3(out, 0, 4, 2.5 * a, a - 1.0, zero(x) + 3.0)
        put6(out, 1, 0, a, b, c, d, e, f)
        put6(out, 2, 0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
        add3(out, 1, 0, d, e, f)
        add6(out, 2, 0, d, e, f, g, h, i)
        put(out, 1, 6, get(x, 2, 6) + plus(1.0, a, 2.0))
        put_at(y, 1, at(y, 0) * at(y, 2))
        above[0] = all_above(d * d, zero(x))
        above[1] = all_above(d, e)

    return kernel


@pytest.mark.parametrize("wide", [False, True], ids=["one state", "states side by side"])
def test_rows(lanes, wide):
    rng = np.random.default_rng(0)
    more = (lanes.LANES,) if wide else ()
    x, y, out = rng.normal(size=(3, 7, *more)), rng.normal(size=(3, *more)), np.zeros((3, 7, *more))
    x[1, 0], x[1, 1] = 2.0, 1.0
    start, above = y.copy(), np.zeros(2, dtype=bool)
    kernel = rows_kernel(lanes)
    kernel(x, y, out, above)
    (a, b, c), (d, e, f, g, h, i) = x[0, 1:4], x[1, :6]
    expected = np.zeros_like(out)
    expected[0] = [a * b - c / d, abs(e), -f, g + h * i, 2.5 * a, a - 1, np.full(more, 3.0)]
    expected[1] = [a + d, b + e, c + f, d, e, f, x[2, 6] + 1 + 2 * a]
    expected[2, :6] = x[1, :6] + np.arange(1.0, 7.0).reshape(6, *[1] * len(more))
    np.testing.assert_allclose(out, expected, rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(y, [start[0], start[0] * start[2], start[2]])
    assert above.all()
    x.reshape(3, 7, -1)[1, 0, -1] = 0.5  # below e in the last state only
    kernel(x, y, out, above)
    assert above.tolist() == [True, False]


def test_vectors(lanes):
    get_vector, put_vector, scaled, total, difference = (
        lanes.get_vector, lanes.put_vector, lanes.scaled, lanes.total, lanes.difference
    )  # fmt: skip
    moved, combined, turned, crosses = lanes.moved, lanes.combined, lanes.turned, lanes.crosses

    @lanes.njit
    def kernel(vectors, out, row):
        a, b, c, d = (
            get_vector(vectors, 0, 0), get_vector(vectors, 0, 1), get_vector(vectors, 0, 2), get_vector(vectors, 0, 3)
        )  # fmt: skip
        x, y, z, w = (
            get_vector(vectors, 1, 0), get_vector(vectors, 1, 1), get_vector(vectors, 1, 2), get_vector(vectors, 1, 3)
        )  # fmt: skip
        put_vector(out, 0, 0, scaled(2.5, a))
        put_vector(out, 0, 1, total(a, b))
        put_vector(out, 0, 2, difference(a, b))
        put_vector(out, 0, 3, moved(a, -1.5, b))
        put_vector(out, 0, 4, combined(0.3, a, -0.7, b, 1.9, c))
        turned_x, turned_y = turned(x, y, 0.6, 0.8)
        put_vector(out, 0, 5, turned_x)
        put_vector(out, 0, 6, turned_y)
        put_vector(row, 1, 2, crosses(a, x, b, y, c, z, d, w))

    vectors = np.random.default_rng(1).normal(size=(2, 4, 4))
    out, row = np.zeros((1, 7, 4)), np.zeros((2, 6))
    kernel(vectors, out, row)
    (a, b, c, _), (x, y, _, _) = vectors[:, :, :3]
    expected = [2.5 * a, a + b, a - b, a - 1.5 * b, 0.3 * a - 0.7 * b + 1.9 * c, 0.8 * x + 0.6 * y, 0.8 * y - 0.6 * x]
    np.testing.assert_allclose(out[0, :, :3], expected, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(row[1, 2:5], np.cross(*vectors[:, :, :3]).sum(axis=0), rtol=1e-13, atol=1e-15)
    assert not row[0].any() and not row[1, :2].any()  # the fourth number may be anything, what comes before not


# ---------------------------------------------------------------------------- which one is used


def test_changed_internals_are_told_once_and_plain_lanes_stand_in():
    told = run(
        "import sys, warnings\n"
        "sys.modules['peptidyn.kernels.lanes_vector'] = None\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from peptidyn.kernels import lanes, motions, states\n"
        "print(lanes.KIND, lanes.LANES, [w.category.__name__ for w in caught], caught[0].message)",
        PEPTIDYN_LANES="vector",
    )
    assert told.startswith("plain 1 ['RuntimeWarning'] The vector kernels of peptidyn do not work with numba")


def test_the_environment_chooses():
    code = "from peptidyn.kernels import lanes; print(lanes.KIND, lanes.LANES)"
    assert run(code, PEPTIDYN_LANES="vector") == "vector 4\n"
    assert run(code, "-W", "error", PEPTIDYN_LANES="plain") == "plain 1\n"
    refused = (
        "from peptidyn.core.errors import ArgumentError\n"
        "try: import peptidyn.kernels.lanes\n"
        "except ArgumentError as error: print(error)"
    )
    assert run(refused, PEPTIDYN_LANES="wide").startswith("PEPTIDYN_LANES is 'wide'; it may be 'vector'")


# ---------------------------------------------------------------------------- whole kernels

MOTION = """
import sys
import numpy as np
import peptidyn as ptd
from peptidyn.integrators.mover import Mover
from peptidyn.kernels import lanes
from peptidyn.kernels.motions import kernels_on_disk

assert lanes.KIND == sys.argv[2]
cold = not kernels_on_disk()
tree = ptd.build_tree(ptd.build_peptide("AWKPA"), "phi psi chi angles")
rng = np.random.default_rng(1)
mover = Mover(tree)
mover.thermalise(0.0, 2.5, rng)
start = mover.momentum.copy()
h = 0.002
assert mover.drift(h)
mover.kick(2.5 * mover.fixman_torque(), h)
solver = ptd.get_solver("articulated")
q = tree.reference.q + rng.normal(size=(6, tree.n_coordinates))
v, tau = rng.normal(size=(2, 6, tree.n_dof))
many = solver.accelerations_of_states(tree, q, v, tau)
state = tree.reference.replace(q=q[0])
np.savez(
    sys.argv[1], start=start, q=mover.q, momentum=mover.momentum, x=mover.positions(), many=many,
    one=solver.solve(tree, state, tau[0]), log_det=solver.log_det(tree, state),
    torque=ptd.FixmanPotential(tree, 300.0).torque(state), mass_rate=tree.masses.sum() / h,
)
print(cold, kernels_on_disk())
"""


@pytest.mark.slow
def test_plain_and_vector_kernels_agree_to_rounding(tmp_path):
    """One cache for both: neither takes what the other has compiled, which would work on arrays of another shape."""
    numbers = {}
    for kind in ("vector", "plain"):
        file = tmp_path / f"{kind}.npz"
        told = run(MOTION, str(file), kind, PEPTIDYN_LANES=kind, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
        assert told == "True True\n"
        numbers[kind] = np.load(file)
    vector, plain = numbers["vector"], numbers["plain"]
    # momenta are m (x1 - x0) / h times a lever arm, of positions that are rounded, at both ends and in both kinds; all
    # else is rounded itself
    size = np.abs(vector["x"]).max()
    allowed = {"momentum": 4.0 * np.finfo(float).eps * vector["mass_rate"] * size * max(1.0, size)}
    for name, expected in vector.items():
        assert np.abs(plain[name] - expected).max() < allowed.get(name, 1e-13 * np.abs(expected).max()), name


@pytest.mark.slow
def test_kernel_and_solver_tests_pass_with_plain_lanes(tmp_path):
    """Structures of PEPTIDYN_STRUCTURES are left out: they take long, and test trees rather than lanes."""
    environment = {**os.environ, "PEPTIDYN_LANES": "plain", "NUMBA_CACHE_DIR": str(tmp_path)}
    environment.pop("PEPTIDYN_STRUCTURES", None)
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-k",
            "not test_solvers or articulated or many_states or sines",
            "tests/test_solvers.py", "tests/test_fixman_potential.py", "tests/test_torsion_integrators.py",
        ],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 50
