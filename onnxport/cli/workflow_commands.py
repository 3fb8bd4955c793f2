"""Escapes our output for GitHub Actions, whose runner executes commands in it: names in a model file could be one.

A command begins a line with ::, or has ##[ anywhere (actions/runner, src/Runner.Common/ActionCommand.cs).
"""

from __future__ import annotations

import os


def inert(text: str) -> str:
    """Escape commands in `text` under GitHub Actions; elsewhere return it unchanged."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    lines = text.replace("##[", "## [").split("\n")
    return "\n".join(f"> {line}" if line.lstrip().startswith("::") else line for line in lines)


def inert_document(document: str) -> str:
    """Escape commands in a JSON document, where # occurs in strings only."""
    return document.replace("##[", "##\\u005b")
