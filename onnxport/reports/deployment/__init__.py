"""The views of where a model runs, one module per form as for single commands."""

from __future__ import annotations

from collections.abc import Mapping

FORMATS: Mapping[str, str] = {
    ".html": "html",
    ".json": "document",
    ".md": "markdown",
    ".sarif": "sarif",
    ".xml": "junit",
}
