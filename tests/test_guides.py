"""The indented command lines of the guides: each is one that the command line takes; those of some pages are run."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest

import onnxport
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


# Pages whose commands are about any model: they run in the folder of `prepared`, as they stand.
RUN = ("diff", "memory", "profile", "quantize", "reduced-build", "routes", "several", "view")
# Of these pages, what is about a model of another size.
OF_OTHERS = ("--shape",)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models and samples under the names that the guides use."""
    folder = tmp_path_factory.mktemp("guides")
    for name in ("model", "a", "b", "release1", "release2", "detector", "recognizer"):
        shutil.copy(ROOT / "fixtures" / "digits" / "digits.onnx", folder / f"{name}.onnx")
    images = np.load(ROOT / "fixtures" / "digits" / "test.npz")["image"]
    for name in ("samples", "calib"):
        (folder / name).mkdir()
        for number in range(40):
            np.savez(folder / name / f"{number:03}.npz", image=images[number : number + 1])
    onnxport.convert_model(folder / "model.onnx", ["tflite", "ort"], folder, samples=1)
    for name in ("detector", "recognizer"):
        onnxport.convert_model(folder / f"{name}.onnx", "ort", samples=1)
    onnxport.quantize_model(folder / "model.onnx", "int8", calib=folder / "samples")
    onnxport.convert_model(folder / "model_int8.onnx", "tflite", inputs=folder / "samples")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_every_command_of_a_page_works_as_written(name: str, prepared: Path, tmp_path: Path) -> None:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    found = [words for words in commands(ROOT / "docs" / "guide" / f"{name}.md") if runs_here(words)]
    assert found
    for words in found:
        command = [sys.executable, "-m", "onnxport", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
        if "--json" in words:  # what `> NAME.json` keeps
            (tmp_path / f"{words[0] if '--runs-on' not in words else 'runs-on'}.json").write_text(done.stdout)


def runs_here(words: list[str]) -> bool:
    """Leave out what is about another model, and the page that is served until Ctrl-C."""
    return not any(each in words for each in OF_OTHERS) and (words[0] != "view" or "--export" in words)
