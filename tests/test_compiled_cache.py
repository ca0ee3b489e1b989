"""Kernels that are compiled in a process and kernels that are read from the cache give the same bits."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from peptidyn.kernels import compiling, motions
from peptidyn.kernels.compiling import _hash_sources
from peptidyn.kernels.lanes import KIND

SCRIPT = """
import hashlib
import numpy as np
import peptidyn as ptd
from peptidyn.integrators.mover import Mover

tree = ptd.build_tree(ptd.build_peptide("AWKPA"), "phi psi chi angles")
mover = Mover(tree)
mover.thermalise(0.0, 2.5, np.random.default_rng(1))
for _ in range(20):
    assert mover.drift(0.004)
    mover.kick(2.5 * mover.fixman_torque(), 0.004)
print(hashlib.sha1(mover.q.tobytes() + mover.momentum.tobytes() + mover.positions().tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_compiled_and_cached_kernels_agree_bit_by_bit(tmp_path):
    """Else a resumed run would differ from one that was never interrupted whenever the first of them had to compile."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[1])}
    outcomes = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True, timeout=300
        ).stdout
        for _ in range(2)
    ]
    assert outcomes[0] == outcomes[1]


def test_kernels_are_compiled_again_when_a_source_of_theirs_changes(tmp_path):
    """The cache of numba looks at a function's own file only; the name in the cache holds a hash of all sources."""
    before = _hash_sources()
    copy = tmp_path / "peptidyn"
    shutil.copytree(Path(compiling.__file__).parents[1], copy, ignore=shutil.ignore_patterns("__pycache__"))
    hashed = runpy.run_path(str(copy / "kernels" / "compiling.py"))["_hash_sources"]
    assert hashed() == before and motions.run_range.py_func.__qualname__ == f"run_range_{KIND}_{before}"
    sources = [f"kernels/{p.name}" for p in (copy / "kernels").glob("*.py")]
    for name in (*sources, "model/kinematics.py", "core/geometry.py"):
        kept = (copy / name).read_text()
        (copy / name).write_text(kept + "\n# changed\n")
        assert hashed() != before
        (copy / name).write_text(kept)
