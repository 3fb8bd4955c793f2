"""Packages of others that name what is none of theirs, or claim what no machine has; and models at Core ML's limits."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.manifest import KEY, PIXELS
from onnxport.validate.runtimes.mil.schema import messages
from tests.cli.failing import Case, assert_fails, registering
from tests.cli.sandbox import Sandbox

PACKAGE = "model.mlpackage"
MODEL = "Data/com.apple.CoreML/model.mlmodel"
WEIGHTS = "Data/com.apple.CoreML/weights/weight.bin"

CASES: dict[str, Case] = {}
case = registering(CASES)
_MADE: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _made(tmp_path_factory: pytest.TempPathFactory) -> None:
    sandbox = Sandbox(tmp_path_factory.mktemp("made"))
    outcome = sandbox.run("convert", "model.onnx", "--to", "coreml", "--no-validate")
    assert outcome.code == 0, outcome.stderr
    _MADE[:] = [sandbox.folder / PACKAGE]


def package(sandbox: Sandbox) -> Path:
    return Path(shutil.copytree(_MADE[0], sandbox.folder / PACKAGE))


def rooted(sandbox: Sandbox, path: str) -> tuple[str, ...]:
    """The package, its model said to be at `path`."""
    file = package(sandbox) / "Manifest.json"
    manifest = json.loads(file.read_text())
    manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"] = path
    file.write_text(json.dumps(manifest))
    return ("inspect", PACKAGE)


def changed(sandbox: Sandbox, change: Callable[[Any, Any], None]) -> tuple[str, ...]:
    """The package after `change` of its message and its block."""
    file = package(sandbox) / MODEL
    model = messages("Model").Model.FromString(file.read_bytes())
    change(model, next(iter(model.mlProgram.functions["main"].block_specializations.values())))
    file.write_bytes(model.SerializeToString())
    return ("validate", "model.onnx", PACKAGE)


def weighed(sandbox: Sandbox, name: str) -> tuple[str, ...]:
    """The package, its weights said to be in the file `name`."""

    def rename(_: Any, block: Any) -> None:
        for operation in block.operations:
            for value in operation.attributes.values():
                if value.WhichOneof("value") == "blobFileValue":
                    value.blobFileValue.fileName = name

    return changed(sandbox, rename)


@case(4, "model.mlpackage is damaged", "names '../../model.onnx', which is no file in it")
def model_above_the_package(sandbox: Sandbox) -> tuple[str, ...]:
    return rooted(sandbox, "../../model.onnx")


@case(4, "model.mlpackage is damaged", "names '/etc/passwd'")
def model_at_an_absolute_path(sandbox: Sandbox) -> tuple[str, ...]:
    return rooted(sandbox, "/etc/passwd")


@case(4, "model.mlpackage is damaged", "names '/dev/zero'")
def model_without_an_end(sandbox: Sandbox) -> tuple[str, ...]:
    return rooted(sandbox, "/dev/zero")


@case(4, "model.mlpackage is damaged", "com.apple.CoreML is no regular file")
def model_that_is_a_folder(sandbox: Sandbox) -> tuple[str, ...]:
    return rooted(sandbox, "com.apple.CoreML")


@case(4, "model.mlpackage is damaged", "model.mlmodel is no regular file")
def model_that_is_a_link_to_a_device(sandbox: Sandbox) -> tuple[str, ...]:
    file = package(sandbox) / MODEL
    file.unlink()
    file.symlink_to("/dev/zero")
    return ("inspect", PACKAGE)


@case(4, "model.mlpackage is damaged", "names '../../../stolen.bin'")
def weights_above_the_package(sandbox: Sandbox) -> tuple[str, ...]:
    shutil.copy(_MADE[0] / WEIGHTS, sandbox.folder / "stolen.bin")
    return weighed(sandbox, "@model_path/../../../stolen.bin")


@case(4, "model.mlpackage is damaged", "names '/etc/passwd'")
def weights_at_an_absolute_path(sandbox: Sandbox) -> tuple[str, ...]:
    return weighed(sandbox, "@model_path//etc/passwd")


@case(4, "model.mlpackage is damaged", "weight.bin is no regular file")
def weights_that_are_a_pipe(sandbox: Sandbox) -> tuple[str, ...]:
    file = package(sandbox) / WEIGHTS
    file.unlink()
    os.mkfifo(file)
    return ("validate", "model.onnx", PACKAGE)


# ---- the notes that our packages carry


def noted(sandbox: Sandbox, key: str, text: str) -> tuple[str, ...]:
    def note(model: Any, _: Any) -> None:
        model.description.metadata.userDefined[key] = text

    return changed(sandbox, note)


def told(sandbox: Sandbox, ends: str, **said: object) -> tuple[str, ...]:
    """The package, its note changed in what it says of its first input or output."""

    def tell(model: Any, _: Any) -> None:
        note = json.loads(model.description.metadata.userDefined[KEY])
        note[ends][0] |= said
        model.description.metadata.userDefined[KEY] = json.dumps(note)

    return changed(sandbox, tell)


@case(4, "model.mlpackage is damaged", "the note of its converter cannot be read")
def note_without_an_end(sandbox: Sandbox) -> tuple[str, ...]:
    return noted(sandbox, KEY, "[" * 100_000)


@case(4, "model.mlpackage is damaged", "the note of its converter cannot be read")
def note_with_a_number_for_a_name(sandbox: Sandbox) -> tuple[str, ...]:
    return told(sandbox, "outputs", name=5)


@case(4, "model.mlpackage is damaged", "the note of its converter cannot be read")
def note_with_sizes_that_are_none(sandbox: Sandbox) -> tuple[str, ...]:
    return ("inspect", told(sandbox, "outputs", shape=["a", -1, {}])[-1])


@case(4, "model.mlpackage is damaged", "names 'nope', which the program does not")
def note_of_an_output_that_is_not_there(sandbox: Sandbox) -> tuple[str, ...]:
    return told(sandbox, "outputs", key="nope")


@case(4, "model.mlpackage is damaged", "names 'nope', which the program does not")
def note_of_an_input_that_is_not_there(sandbox: Sandbox) -> tuple[str, ...]:
    return told(sandbox, "inputs", key="nope")


@case(4, "model.mlpackage is damaged", "its note onnxport.pixels cannot be read")
def note_of_images_that_is_none(sandbox: Sandbox) -> tuple[str, ...]:
    return noted(sandbox, PIXELS, '{"image": 5}')


@case(4, "model.mlpackage is damaged", "has a scale of 0")
def note_of_images_without_a_scale(sandbox: Sandbox) -> tuple[str, ...]:
    return noted(sandbox, PIXELS, '{"image": {"scale": [0], "bias": [0]}}')


# ---- models and outputs


@case(3, "'k'", "has the constant 1099511627776, and Core ML's integers are of 32 bits")
def output_that_is_a_constant_beyond_32_bits(sandbox: Sandbox) -> tuple[str, ...]:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    k = helper.make_tensor_value_info("k", TensorProto.INT64, [1])
    node = helper.make_node("Relu", ["x"], ["y"])
    held = [numpy_helper.from_array(np.array([2**40]), "k")]
    graph = helper.make_graph([node], "g", ends[:1], [ends[1], k], held)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, sandbox.folder / "wide.onnx")
    return ("convert", "wide.onnx", "--to", "coreml")


@case(2, "the output model.onnx does not end in .mlpackage")
def output_that_is_the_input(sandbox: Sandbox) -> tuple[str, ...]:
    """The advice must not be to remove what is converted."""
    return ("convert", "model.onnx", "--to", "coreml", "-o", "model.onnx")


@pytest.mark.parametrize("name", CASES)
def test_failure_says_why_and_leaves_nothing(name: str, sandbox: Sandbox) -> None:
    assert_fails(CASES[name], sandbox)


def test_a_link_to_the_weights_is_followed(sandbox: Sandbox) -> None:
    """Download caches keep files elsewhere, and links in the package."""
    file = package(sandbox) / WEIGHTS
    shutil.move(file, sandbox.folder / "blob")
    file.symlink_to(sandbox.folder / "blob")
    outcome = sandbox.run("validate", "model.onnx", PACKAGE)
    assert outcome.code == 0, outcome.stderr


def test_a_model_of_gigabytes_of_nothing_is_not_read(sandbox: Sandbox) -> None:
    os.truncate(package(sandbox) / MODEL, 1 << 32)  # a hole, which takes no space
    outcome = sandbox.run("inspect", PACKAGE)
    assert outcome.code == 4
    assert "model.mlmodel has 4294967296 bytes, more than any model" in outcome.stderr
