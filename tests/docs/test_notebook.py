"""The tutorial notebook runs from its first cell to its last in a real kernel, and is kept without outputs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FILE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.ipynb"
RAISES = "raises-exception"


def cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(output: Any) -> str:
    """What an output shows, without colours."""
    shown = output.get("text") or "\n".join(output.get("traceback", [])) or output.data["text/plain"]
    return re.sub(r"\x1b\[[\d;]*m", "", shown)


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = nbformat.read(FILE, as_version=4)
    nbformat.validate(notebook)
    assert [cell for cell in cells(notebook) if cell.outputs or cell.execution_count] == []
    texts = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    for target in re.findall(r"\]\(([^)\s]+)\)", texts):
        assert (FILE.parent / target).is_file(), target


def test_the_notebook_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("EINKORN_PROGRESS", "0")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = nbformat.read(FILE, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()  # a cell that fails ends it, those aside
    raised = []
    for cell in cells(notebook):
        fails = RAISES in cell.metadata.get("tags", [])
        assert all(output.output_type != "stream" for output in cell.outputs), cell.outputs  # warnings, prints
        assert any(output.output_type == "error" for output in cell.outputs) is fails, cell.source
        if fails:
            [output] = cell.outputs
            text, number = text_of(output), cell.execution_count
            assert re.search(rf"^In\[{number}\]:\d+:\d+: error\[EK\d{{4}}\]: ", text, re.MULTILINE), text
            assert "^" in text and ".py" not in text, text  # the cell's line is drawn, and no file of Einkorn's
            raised.append(re.findall(r"EK\d{4}", text)[0])
    assert raised == ["EK0312", "EK0101", "EK0701"]
    shown = [output for cell in cells(notebook) for output in cell.outputs if "text/html" in output.get("data", {})]
    assert [text_of(output).split()[0] for output in shown] == ["kernel", "model", "profile"]
    by_cell = {cell.execution_count: text_of(cell.outputs[-1]) for cell in cells(notebook) if cell.outputs}
    assert by_cell[1] == "array([1., 2., 3., 4., 5.])"
    assert "(array([2., 2.]), array([10., 10.]))" in by_cell.values()  # a name that a kernel reads has changed
