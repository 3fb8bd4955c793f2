"""Keeps what we print from being a command of GitHub Actions, whose runner reads a step's output, whoever named it.

A command begins a line with :: or holds ##[ anywhere in it (actions/runner, src/Runner.Common/ActionCommand.cs).
"""

from __future__ import annotations

import os


def inert(text: str) -> str:
    """`text` as no line of it is a command; elsewhere than under GitHub Actions as it is."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    lines = text.replace("##[", "## [").split("\n")
    return "\n".join(f"> {line}" if line.lstrip().startswith("::") else line for line in lines)


def inert_document(document: str) -> str:
    """The same JSON document without a command in it: of its characters, # stands in strings alone."""
    return document.replace("##[", "##\\u005b")
