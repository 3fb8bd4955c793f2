"""What is known of an artefact's making, as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from onnxport.errors import printable
from onnxport.pipelines.verifying import Verification

_STATUS = {"holds": "", "fails": "does not hold: ", "later": "", "unknown": "not checked: "}


def verification_lines(found: Verification, *, all_of_it: bool = False) -> str:
    """A subject per line; `all_of_it` has the versions as well."""
    lines = [f"{found.path}   {_verdict(found)}"]
    for name, text in _rows(found, all_of_it):
        lines.append(f"  {name:<12}{text}")
    return "\n".join(printable(line) for line in lines)


def _verdict(found: Verification) -> str:
    if found.exit_code:
        return "does not hold"
    return "holds" if found.lock else "nothing speaks against it"


def _rows(found: Verification, all_of_it: bool) -> Iterator[tuple[str, str]]:
    yield "made from", f"{found.source_name or 'a model of'} SHA-256 {found.source}"
    for number, stage in enumerate(found.stages):
        options = (f"{name}={_shown(value)}" for name, value in stage.options.items())
        yield "" if number else "stages", " ".join([stage.stage, *options])
    if all_of_it:
        yield "made by", ", ".join(f"{name} {version}" for name, version in found.versions.items())
    yield "lock", found.lock or "none"
    for check in found.checks:
        yield check.subject, f"{_STATUS[check.status]}{check.said}"


def _shown(value: Any) -> str:
    if isinstance(value, dict) and "sha256" in value:
        return f"{value.get('folder') or value.get('file')} ({value['sha256'][:12]})"
    return value if isinstance(value, str) else json.dumps(value)
