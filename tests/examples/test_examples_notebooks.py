"""The notebooks: what is committed was executed, and they run from a fresh folder to the end."""

import ast
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
#: words that the outputs of each notebook must contain
EXPECTED = {
    "text_audit": (
        "The mention changes the prediction",
        "village/orchard",
        "speaks for positive",
    ),
    "own_method": ("word-occlusion at inputs", "of 30 correct; explained by word-occlusion"),
    "picture_explanations": ("speaks for 3", "400 pictures, accuracy 0.9"),
}


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: Any) -> str:
    """All texts that the cells of a notebook gave."""
    found = []
    for cell in code_cells(notebook):
        for one in cell.outputs:
            found += [one.get("text", ""), *map(str, one.get("data", {}).values())]
    return "\n".join(found)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_notebooks_were_executed(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {one.output_type for cell in cells for one in cell.outputs}
    assert kinds <= {"execute_result", "display_data", "stream"}
    printed = outputs(notebook)
    assert all(words in printed for words in EXPECTED[path.stem])
    assert "/tmp/" not in printed and "/home/" not in printed and "site-packages" not in printed
    assert path.stat().st_size < 300_000


def test_from_a_csv_to_a_verdict_takes_less_than_15_lines() -> None:
    notebook = nbformat.read(FOLDER / "text_audit.ipynb", as_version=4)
    (audit,) = (cell.source for cell in code_cells(notebook) if "te.audit(" in cell.source)
    ast.parse(audit)
    lines = [line for line in audit.splitlines() if line.strip()]
    assert "read_csv" in lines[2] and len(lines) < 15


@pytest.mark.timeout(900)
@pytest.mark.exhaustive
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebooks_run_to_the_end(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    for cell in code_cells(notebook):
        cell.outputs = []
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place).execute()
    printed = outputs(notebook)
    assert all(words in printed for words in EXPECTED[path.stem])
