"""Run the notebooks of this folder and keep what they print: python -m examples.notebooks.refresh

It needs nbclient and ipykernel. tests/examples/test_notebooks.py runs them, too, and compares what they print with
what is kept; the figures of cells with the tag "varies" differ from run to run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def executed(path: Path) -> Any:
    """Return a notebook with the outputs of a fresh run in its folder; CellExecutionError where a cell fails."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]  # progress, logs
    notebook.metadata = {"language_info": {"name": "python"}}
    return notebook


def main() -> None:
    """Write all notebooks anew."""
    import nbformat

    for path in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(executed(path), path)


if __name__ == "__main__":
    main()
