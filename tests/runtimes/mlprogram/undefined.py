"""Cases that Apple's documentation leaves undefined, and what strict mode has to say of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onnxport.runtimes.mlprogram.kernels.registry import Undefined
from tests.runtimes.mlprogram.programs import evaluated

# Operator, arguments, opset, and the words that say what is undefined.
Case = tuple[str, dict[str, Any], str, str]


def each_of(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """Runs a test with each case."""
    return pytest.mark.parametrize(
        ("operator", "arguments", "opset", "words"),
        cases,
        ids=[f"{each[0]}-{each[2]}-{place}" for place, each in enumerate(cases)],
    )


def check_refused(folder: Path, operator: str, arguments: dict[str, Any], opset: str, words: str) -> None:
    """Strict mode refuses the case in these words, beginning with the operator's name."""
    with pytest.raises(Undefined, match=words) as caught:
        evaluated(folder, operator, [arguments], opset)
    assert str(caught.value).startswith(f"{operator} ")
