"""The notebooks: stored without outputs, named in the documentation, and executed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["fixman", "polyalanine", "quickstart"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_without_outputs(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and cells[0]["cell_type"] == "markdown"
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    assert f"examples/notebooks/{path.name}" in (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path):
    """Every cell, in a kernel of its own; the last one shows the molecule in 3-D."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    kinds = {kind for output in shown for kind in output.get("data", {})}
    assert "image/png" in kinds and "application/3dmoljs_load.v0" in kinds
