"""tests/slow.txt: it names test functions that exist."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import slow_tests

ROOT = Path(__file__).parents[1]


def test_every_name_is_a_test() -> None:
    gone = []
    for name in slow_tests():
        file, *_, function = name.split("::")
        path = ROOT / file
        if not path.is_file() or f"def {function}(" not in path.read_text(encoding="utf-8"):
            gone.append(name)
    assert not gone
