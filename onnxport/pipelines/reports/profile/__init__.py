"""The views of a profile, one module per form as for single commands."""

from __future__ import annotations

from collections.abc import Mapping

FORMATS: Mapping[str, str] = {
    ".json": "document",
}
