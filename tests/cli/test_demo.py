"""The table of `make demo`."""

from __future__ import annotations

import importlib.util
import io
import sys
from types import ModuleType

import pytest
from rich.console import Console

from tests.cli.sandbox import ROOT


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo", module)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_each_proven_artefact_is_one_line_of_80_columns(demo: ModuleType) -> None:
    longest = max((f"{name}.{suffix}" for name in demo.REAL for suffix in demo.SUFFIXES.values()), key=len)
    row = demo.Row(longest, "546.1 kB (0.93x)", 1.7, "proven: within float32 noise", proven=True)
    shown = io.StringIO()
    Console(file=shown, width=80).print(demo.table([row, row]))
    assert len(shown.getvalue().splitlines()) == 3, shown.getvalue()
