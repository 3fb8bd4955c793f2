"""The indented command lines of the guides: each is one that the command line takes."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from onnxport.cli.commands import COMMANDS
from onnxport.formats import remote

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
_COMMAND = re.compile(r"^ {4,}(?:\$ )?(onnxport [a-z]+(?: .*)?)$", re.MULTILINE)
# What follows the words of a command.
_ENDS = {">", ">>", "2>", "|", "||", "&&", ";", "&"}


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each indented command, without comments, brackets of what may be left out, and pipes."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in _COMMAND.findall(text):
        plain = re.split(r"\s+#\s", line)[0].replace("[", "").replace("]", "")
        words = shlex.split(plain)
        end = next((number for number, word in enumerate(words) if word in _ENDS), len(words))
        yield words[1:end]


def complaint(words: list[str]) -> str:
    """Return what is wrong with a command; empty if it is taken. Files need not be there."""
    name, *arguments = words
    if name not in COMMANDS:
        return f"there is no command {name!r}"
    try:
        importlib.import_module(f"onnxport.cli.{name}").command.make_context(name, arguments)
    except click.exceptions.Exit:  # --help
        return ""
    except click.UsageError as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(commands(page))],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_every_indented_command_is_taken(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """URLs and shell variables stand for files: nothing is fetched, no library is looked for."""
    monkeypatch.setattr(remote, "fetch", lambda given: "model.onnx" if "://" in str(given) else given)
    monkeypatch.setattr(remote, "place_for", lambda given: "made" if "://" in str(given) else given)
    told = {shlex.join(words): complaint(words) for words in commands(page) if "$" not in " ".join(words)}
    assert {line: said for line, said in told.items() if said} == {}


def test_a_misspelt_option_and_a_wrong_value_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n    onnxport bench model.onnx [--thread 1]\n    $ onnxport convert model.onnx --to tflit\n"
    )
    one, other = commands(page)
    assert "--thread" in complaint(one)
    assert "tflit" in complaint(other)
