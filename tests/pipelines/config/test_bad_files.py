"""Every fault of a pipeline.yaml is told with line, key and way out, all of a file at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onnxport.core.errors import BAD_INPUT, USAGE, OnnxportError
from onnxport.pipelines.config.reader import read
from tests.pipelines.config.conftest import Read, faults

# Of what is wrong, that which no CI would forgive: exit 4, not 2.
_NOT_THERE = ("does not exist", "no file matches", "is empty;")

NO_PIPELINE: dict[str | bytes, str] = {
    "": "pipeline.yaml is empty; begin it with version: 1",
    "# only a comment\n": "pipeline.yaml is empty; begin it with version: 1",
    "just text": "1: 'just text' where keys are expected; begin with version: 1",
    "version: 1\n\tmodel: x\n": (
        "2 is not valid YAML: found character '\\t' that cannot start any token; indent with spaces"
    ),
    b"version: 1\nmodel: \xff\n": "2 is not UTF-8; save the file as UTF-8",
    b"\xff\xfev\0": "1 is not UTF-8; save the file as UTF-8",
    "version: 1\nmodel: a\x07b\n": "2 is not valid YAML: a character 0x07",
    "[" * 5000: "pipeline.yaml is nested too deeply for a pipeline",
    "a" * (2**20 + 1): "pipeline.yaml is not a pipeline: it is larger than 1,048,576 bytes; "
    "if you trust the file, allow more: --limit yaml-bytes=1100000",
}


def cases() -> Iterator[tuple[str, list[str]]]:
    """Text and faults of every case in bad_files.txt."""
    table = Path(__file__).with_name("bad_files.txt").read_text(encoding="utf-8")
    for case in table.split("\n====\n"):
        lines = case.strip().splitlines()
        while lines and (not lines[0] or lines[0].startswith("# ")):
            del lines[0]
        if lines:
            text, _, expected = "\n".join(lines).partition("\n----\n")
            yield text + "\n", expected.splitlines()


@pytest.mark.parametrize("text", NO_PIPELINE, ids=lambda text: repr(text[:40]))
def test_what_is_no_pipeline(text: str | bytes, pipeline: Read) -> None:
    with pytest.raises(OnnxportError) as caught:
        pipeline(text)
    assert faults(caught.value) == [NO_PIPELINE[text]]
    assert caught.value.exit_code == USAGE


@pytest.mark.parametrize(("text", "expected"), list(cases()))
def test_every_fault_is_told_at_once(text: str, expected: list[str], pipeline: Read) -> None:
    with pytest.raises(OnnxportError) as caught:
        pipeline(text)
    assert sorted(faults(caught.value)) == sorted(expected)
    absent = any(words in f"{fault}\n" for fault in expected for words in _NOT_THERE)
    assert caught.value.exit_code == (BAD_INPUT if absent else USAGE)
    assert not Path("build").exists()


def test_faults_stand_in_the_order_of_the_lines(pipeline: Read) -> None:
    with pytest.raises(OnnxportError) as caught:
        pipeline("version: 1\nmodel: nowhere.onnx\nversoin: 1\ntargets: {a: {to: orrt}}\n")
    assert str(caught.value) == (
        "pipeline.yaml has 3 faults:\n"
        "  pipeline.yaml:2, model: nowhere.onnx does not exist\n"
        "  pipeline.yaml:3, versoin: there is no such key; did you mean 'version'?\n"
        "  pipeline.yaml:4, targets.a.to: there is no target 'orrt'; did you mean 'ort'?"
    )
    assert caught.value.exit_code == BAD_INPUT


def test_aliases_that_explode_are_refused(pipeline: Read) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(OnnxportError, match="too large for a pipeline"):
        pipeline("\n".join(lines))


def _nothing(file: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Path.mkdir, "pipeline.yaml is a directory; give the pipeline.yaml in it"),
        (_nothing, "pipeline.yaml does not exist; write one with: onnxport init"),
    ],
)
def test_file_that_cannot_be_read(make: Callable[[Path], None], sentence: str, project: Path) -> None:
    make(Path("pipeline.yaml"))
    with pytest.raises(OnnxportError) as caught:
        read(Path("pipeline.yaml"))
    assert (str(caught.value), caught.value.exit_code) == (sentence, BAD_INPUT)
