"""The views of a profile, one module per form as for single commands; it judges nothing, so CI's forms are not here."""

from __future__ import annotations

from collections.abc import Mapping

FORMATS: Mapping[str, str] = {".html": "html", ".json": "document", ".md": "markdown"}
