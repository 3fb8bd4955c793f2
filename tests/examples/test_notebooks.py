"""The notebooks run as they are, and print what they show."""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from examples.notebooks import refresh

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(refresh.FOLDER.glob("*.ipynb"))
lacking = [name for name in ("nbclient", "ipykernel") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacking) and not os.environ.get("CI"), reason=f"needs {lacking}: make venv"),
]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of what the notebooks read, and a kernel that sees this tree."""
    shutil.copytree(ROOT / "fixtures" / "digits", tmp_path / "fixtures" / "digits")
    inherited = filter(None, (os.environ.get("PYTHONPATH"),))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), *inherited)))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "examples" / "notebooks"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(notebook: Path, environment: Path) -> None:
    shutil.copy(notebook, environment)
    found = refresh.executed(environment / notebook.name)
    shown = json.loads(notebook.read_text(encoding="utf-8"))
    for cell, kept in zip(found.cells, shown["cells"], strict=True):
        if cell.cell_type == "code":
            assert bool(cell.outputs) == bool(kept["outputs"]), cell.source
            if "varies" not in cell.metadata.get("tags", ()):
                assert texts(cell.outputs) == texts(kept["outputs"]), cell.source


def texts(outputs: list[dict[str, Any]]) -> str:
    return "".join(
        "".join(part)
        for each in outputs
        for part in (each.get("text", ""), each.get("data", {}).get("text/plain", ""))
    )
