"""Limits on what untrusted files may describe. Each has a name by which the user raises it, and its error says so.

The environment holds them, so that child processes and worker processes on this machine have the same.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from onnxport.core.errors import UsageError

VARIABLE = "ONNXPORT_LIMITS"
# Name -> the value unless the user gives one; 0 where the code computes it from the machine. docs/internals/security.md
# says what each counts and where its value comes from.
DEFAULTS: Mapping[str, int] = {
    "parts": 500_000,
    "overlap": 8,
    "growth": 16,
    "fill": 1 << 20,
    "unpacked": 0,
    "pixels": 0,
    "cell": 0,
    "yaml-bytes": 1 << 20,
    "yaml-values": 20_000,
    "yaml-depth": 30,
    "lock-bytes": 8 << 20,
    "download": 8 << 30,
    "child-memory": 0,
    "child-file": 0,
}
_NUMBER = re.compile(r"(\d+)([kMGT]?)B?")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def limit(name: str, default: int | None = None) -> int:
    """Return a limit: the user's, or else `default`, or else that of DEFAULTS (UsageError: see `parse`)."""
    own = _given().get(name)
    return own if own is not None else DEFAULTS[name] if default is None else default


def is_given(name: str) -> bool:
    """Return whether the user gave this limit."""
    return name in _given()


def advice(name: str, needed: int | None = None) -> str:
    """Return the words that tell how to raise a limit, to `needed` where that is known."""
    return f"if you trust the file, allow more: --limit {name}={_round_up(needed) if needed else 'VALUE'}"


def parse(text: str) -> dict[str, int]:
    """Read "NAME=VALUE,NAME=VALUE"; UsageError for unknown names, and for values that are not like 5000 or 2M."""
    found = {}
    for entry in filter(None, text.split(",")):
        name, _, value = (part.strip() for part in entry.partition("="))
        if name not in DEFAULTS:
            near = difflib.get_close_matches(name, DEFAULTS, n=1)
            fix = f"did you mean {near[0]}?" if near else f"the limits are {', '.join(DEFAULTS)}"
            raise UsageError(f"there is no limit {name!r}", fix=fix)
        match = _NUMBER.fullmatch(value)
        if match is None or not int(match[1]):
            raise UsageError(f"the limit {name}={value} is not allowed", fix="give a number, as 5000 or 2M")
        found[name] = int(match[1]) * _UNITS[match[2]]
    return found


@contextmanager
def limits(**raised: int | str) -> Iterator[None]:
    """Raise or lower limits of this process, and of the processes that it starts, for a with block.

    Args:
        **raised: names with `_` for `-`, as `parts=1_000_000` or `yaml_values="50k"`.

    Raises:
        UsageError: there is no such limit, or the value is not a positive number.

    Examples:
        >>> with onnxport.limits(parts=1):
        ...     onnxport.convert_model("digits.onnx", to="ort")
        Traceback (most recent call last):
        onnxport.core.errors.InputError: digits.onnx is too large to be read: it has 30 nodes, ...
    """
    words = (f"{name.replace('_', '-')}={value}" for name, value in raised.items())
    before = os.environ.get(VARIABLE)
    merged = parse(before or "") | parse(",".join(words))
    if merged:
        os.environ[VARIABLE] = ",".join(f"{name}={value}" for name, value in merged.items())
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def _given() -> dict[str, int]:
    text = os.environ.get(VARIABLE, "")
    return parse(text) if text else {}


def _round_up(number: int) -> int:
    """Round up to two digits."""
    step: int = 10 ** max(len(str(number)) - 2, 0)
    return -(-number // step) * step
