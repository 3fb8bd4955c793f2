"""Real models at the newest opset, by the installed command in fresh processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.opsets import brought, trained


def test_there_are_34_of_them() -> None:
    assert len(trained()) == 34


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", trained())
def test_a_real_model_is_proven_at_the_newest_opset(key: str, tmp_path: Path) -> None:
    sound, line = brought(key, "latest", tmp_path)
    assert sound
    assert "-> 26  proven" in line
