"""Where this package was installed from, which a workflow has to repeat (PEP 610, direct_url.json)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any


def requirement(extras: Iterable[str]) -> str:
    """Return what pip installs as this package with `extras`: the commit that it came from, or its name."""
    named = f"onnxport[{','.join(sorted(extras))}]" if extras else "onnxport"
    origin = _origin()
    if "vcs_info" not in origin:
        return named
    return f"{named} @ {origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}"


def local_origin() -> str:
    """Return the file or folder that it was installed from, as a URL; empty for a repository or an index."""
    origin = _origin()
    return "" if "vcs_info" in origin else str(origin.get("url", ""))


def _origin() -> dict[str, Any]:
    try:
        text = distribution("onnxport").read_text("direct_url.json")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return {}
    found: dict[str, Any] = json.loads(text or "{}")
    return found
