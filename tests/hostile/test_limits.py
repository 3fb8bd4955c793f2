"""Every limit is refused by a sentence with the option that raises it, and the option raises it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from PIL import Image

import onnxport
from onnxport.core.errors import InputError, UsageError
from onnxport.core.limits import DEFAULTS, VARIABLE
from onnxport.formats.model import Model
from tests.cli.sandbox import DIGITS
from tests.hostile.attacking import Target
from tests.hostile.test_artefact_attacks import _constant, _package
from tests.hostile.test_model_attacks import external, save
from tests.hostile.test_sample_attacks import npy, npz, put
from tests.hostile.test_text_attacks import HEAD, TARGETS, pipeline

# Limit -> the value that refuses what the function makes, that which allows it where the message cannot tell, and the
# function, which returns the command.
CASES: dict[str, tuple[int, str, Callable[[Target], tuple[str, ...]]]] = {}


def case(name: str, low: int, high: str = "") -> Callable[..., None]:
    def register(prepare: Callable[[Target], tuple[str, ...]]) -> None:
        CASES[name] = (low, high, prepare)

    return register


@case("parts", 3)
def three_nodes(target: Target) -> tuple[str, ...]:
    save(target, [helper.make_node("Relu", [a], [b]) for a, b in ("xa", "ab", "by")])
    return ("inspect", "bad.onnx")


@case("overlap", 1)
def two_weights_of_the_same_bytes(target: Target) -> tuple[str, ...]:
    (target.folder / "w.bin").write_bytes(bytes(16))
    nodes = [helper.make_node("Add", ["x", "w"], ["z"]), helper.make_node("Add", ["z", "v"], ["y"])]
    save(target, nodes, external("w.bin"), external("w.bin", "v"))
    return ("inspect", "bad.onnx")


@case("growth", 1, "5000")
def packed_weights_of_the_same_bytes(target: Target) -> tuple[str, ...]:
    """Bits, of which each takes a byte in memory: 80 MB of 100 kB."""
    arguments = _package(
        target, lambda _, block: [_bits(block, f"c{number}", 800_000) for number in range(100)]
    )
    weights = target.folder / "bad.mlpackage" / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
    header = np.array([0xDEADBEEF, 0, 100_000, 0, 128, 0], np.uint32).tobytes()
    weights.write_bytes(header.ljust(128, b"\0") + bytes(100_000))
    return arguments


def _bits(block: object, name: str, count: int) -> None:
    _constant(block, name, count, "UINT1").blobFileValue.fileName = "@model_path/weights/weight.bin"


@case("fill", 50)
def one_number_for_a_hundred(target: Target) -> tuple[str, ...]:
    return _package(
        target, lambda _, block: _constant(block, "c", 100).immediateValue.tensor.floats.values.append(1.0)
    )


@case("unpacked", 100)
def archive_of_a_kilobyte(target: Target) -> tuple[str, ...]:
    put(target, "a.npz", npz(x=npy(np.zeros((2, 4, 30), np.float32))))
    return (":samples", "in/a.npz", "x=float32:2,4,30")


@case("pixels", 10, "1000")
def picture_of_a_hundred_pixels(target: Target) -> tuple[str, ...]:
    file = put(target, "a.png", b"")
    Image.new("L", (8, 8)).save(file)
    return (":samples", "in", "image=float32:N,1,8,8")


@case("cell", 5, "1000")
def table_with_a_cell_of_ten_characters(target: Target) -> tuple[str, ...]:
    put(target, "a.csv", b"x\n0.12345678\n")
    return (":samples", "in/a.csv", "x=float32:N,1")


@case("yaml-bytes", 20)
def pipeline_of_fifty_bytes(target: Target) -> tuple[str, ...]:
    return pipeline(target, HEAD + TARGETS)


@case("yaml-values", 2, "100")
def pipeline_of_five_values(target: Target) -> tuple[str, ...]:
    return pipeline(target, HEAD + TARGETS)


@case("yaml-depth", 1, "10")
def pipeline_of_three_levels(target: Target) -> tuple[str, ...]:
    return pipeline(target, HEAD + TARGETS)


@case("lock-bytes", 3)
def lock_of_ten_characters(target: Target) -> tuple[str, ...]:
    (target.folder / "pipeline.lock").write_text("version: 1\n")
    return pipeline(target, HEAD + TARGETS)


@pytest.mark.parametrize("name", CASES)
def test_the_message_names_the_option_that_raises_the_limit(name: str, target: Target) -> None:
    low, high, prepare = CASES[name]
    arguments = prepare(target)
    target.environment[VARIABLE] = f"{name}={low}"
    refused = target.run(*arguments)
    assert refused.code in (2, 4), refused.stdout
    advised = re.search(rf"if you trust the file, allow more: --limit {name}=(\w+)", refused.stderr)
    assert advised, refused.stderr
    if not high:
        high = advised[1]
    if arguments[0] == ":samples":  # no command of its own
        target.environment[VARIABLE] = f"{name}={high}"
        raised = target.run(*arguments)
    else:
        raised = target.run(*arguments, "--limit", f"{name}={high}")
    assert "--limit" not in raised.stderr, raised.stderr
    assert raised.code == 0 or name == "lock-bytes", raised.stderr  # that is no whole lock


def test_each_limit_of_files_is_tried() -> None:
    elsewhere = {"download"}  # tests/formats/test_remote.py
    assert set(CASES) == {name for name in DEFAULTS if not name.startswith("child-")} - elsewhere


def test_limits_hold_for_the_block_and_nest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "yaml-depth=5")
    with onnxport.limits(parts=1):
        with onnxport.limits(parts="2k"):
            assert Model.load(DIGITS).inputs
        with pytest.raises(InputError, match="--limit parts="):
            Model.load(DIGITS)
    assert Model.load(DIGITS).inputs


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("part=5", "there is no limit 'part'; did you mean parts?"),
        ("=5", "there is no limit ''; the limits are parts, overlap"),
        ("parts=-5", "the limit parts=-5 is not allowed; give a number, as 5000 or 2M"),
        ("parts=0", "the limit parts=0 is not allowed"),
        ("parts", "the limit parts= is not allowed"),
    ],
)
def test_a_wrong_limit_is_refused(given: str, says: str, target: Target) -> None:
    target.refuses(2, ("inspect", str(Path(DIGITS)), "--limit", given), says)
    target.environment[VARIABLE] = given
    target.refuses(2, ("inspect", str(Path(DIGITS))), says)


def test_python_raises_the_same_errors() -> None:
    with pytest.raises(UsageError, match="did you mean pixels"), onnxport.limits(pixel=1):
        pass
