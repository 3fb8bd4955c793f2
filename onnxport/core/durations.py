"""Durations as a user writes them: "20ms", "800us", "1.5s"."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_MILLISECONDS = {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s)")


def milliseconds_of(text: str) -> float:
    """Parse a duration into milliseconds; raises ValueError for any other text, and for 0."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise ValueError("give a time such as 20ms, 800us or 1.5s")
    return float(match[1]) * _MILLISECONDS[match[2]]


def _check(text: str) -> str:
    milliseconds_of(text)
    return text


# A duration as the user wrote it, for errors and reports.
Duration = Annotated[str, AfterValidator(_check)]
