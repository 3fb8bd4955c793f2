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

from onnxport.formats.manifest import KEY, MAIN, pixels_key
from onnxport.formats.mlpackage.files import messages
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


@case(4, "model.mlpackage is damaged", "names '../../model.onnx', which is not a file in it")
def model_above_the_package(sandbox: Sandbox) -> tuple[str, ...]:
    return rooted(sandbox, "../../model.onnx")


@case(4, "model.mlpackage is damaged", "names '/etc/passwd'")
def model_at_an_absolute_path(sandbox: Sandbox) -> tuple[str, ...]:
    return rooted(sandbox, "/etc/passwd")


@case(4, "model.mlpackage is damaged", "names '/dev/zero'")
def model_without_an_end(sandbox: Sandbox) -> tuple[str, ...]:
    return rooted(sandbox, "/dev/zero")


@case(4, "model.mlpackage is damaged", "com.apple.CoreML is not a regular file")
def model_that_is_a_folder(sandbox: Sandbox) -> tuple[str, ...]:
    return rooted(sandbox, "com.apple.CoreML")


@case(4, "model.mlpackage is damaged", "model.mlmodel is not a regular file")
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


@case(4, "model.mlpackage is damaged", "weight.bin is not a regular file")
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


@case(4, "model.mlpackage is damaged", "names 'nope', the program does not")
def note_of_an_output_that_is_not_there(sandbox: Sandbox) -> tuple[str, ...]:
    return told(sandbox, "outputs", key="nope")


@case(4, "model.mlpackage is damaged", "names 'nope', the program does not")
def note_of_an_input_that_is_not_there(sandbox: Sandbox) -> tuple[str, ...]:
    return told(sandbox, "inputs", key="nope")


@case(4, "model.mlpackage is damaged", "its note onnxport.pixels cannot be read")
def note_of_images_that_is_none(sandbox: Sandbox) -> tuple[str, ...]:
    return noted(sandbox, pixels_key(MAIN), '{"image": 5}')


@case(4, "model.mlpackage is damaged", "has a scale of 0")
def note_of_images_without_a_scale(sandbox: Sandbox) -> tuple[str, ...]:
    return noted(sandbox, pixels_key(MAIN), '{"image": {"scale": [0], "bias": [0]}}')


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


@case(2, "model.mlpackage is replaced as a whole", "give the other output a path beside it")
def report_inside_the_output(sandbox: Sandbox) -> tuple[str, ...]:
    package(sandbox)
    return ("convert", "model.onnx", "--to", "coreml", "--report", f"{PACKAGE}/run.json")


@case(2, "the output model.mlpackage contains the input and would replace it")
def input_inside_the_output(sandbox: Sandbox) -> tuple[str, ...]:
    shutil.move(sandbox.folder / "model.onnx", package(sandbox) / "model.onnx")
    return ("convert", f"{PACKAGE}/model.onnx", "--to", "coreml", "-o", PACKAGE)


@case(2, "the image 'x' is given by 1e+39, which float32 cannot represent")
def image_scale_beyond_float32(sandbox: Sandbox) -> tuple[str, ...]:
    rectified(sandbox, "x", "y", [1, 3, 8, 8])
    return ("convert", "relu.onnx", "--to", "coreml", "--image", "x=scale:1e39")


def rectified(sandbox: Sandbox, x: str, y: str, shape: list[int]) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in (x, y)]
    graph = helper.make_graph([helper.make_node("Relu", [x], [y])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, sandbox.folder / "relu.onnx")


# ---- what is said about the model


def labelled(sandbox: Sandbox, labels: str) -> tuple[str, ...]:
    (sandbox.folder / "labels.txt").write_text(labels)
    return ("convert", "model.onnx", "--to", "coreml", "--shape", "image=1,1,8,8", "--labels", "labels.txt")


@case(2, "labels.txt has no label in line 2", "give each class a label")
def labels_with_a_gap(sandbox: Sandbox) -> tuple[str, ...]:
    return labelled(sandbox, "a\n\nb\nc\nd\ne\nf\ng\nh\ni\n")


@case(2, "labels.txt has the label 'a' twice")
def labels_twice(sandbox: Sandbox) -> tuple[str, ...]:
    return labelled(sandbox, "\n".join([*map(str, range(200_000)), "a", "a"]))


@case(2, "labels.txt has 9 labels, and output 'logits' has 10 numbers")
def labels_too_few(sandbox: Sandbox) -> tuple[str, ...]:
    return labelled(sandbox, "\n".join("abcdefghi"))


@case(4, "the label file /dev/zero cannot be read: it is not a regular file")
def labels_without_an_end(sandbox: Sandbox) -> tuple[str, ...]:
    return ("convert", "model.onnx", "--to", "coreml", "--labels", "/dev/zero")


@case(4, "labels.txt is not UTF-8 text")
def labels_that_are_no_text(sandbox: Sandbox) -> tuple[str, ...]:
    (sandbox.folder / "labels.txt").write_bytes(bytes(range(256)))
    return ("convert", "model.onnx", "--to", "coreml", "--labels", "labels.txt")


@case(2, "--metadata cannot set 'onnxport'", "give it another name")
def metadata_of_ours(sandbox: Sandbox) -> tuple[str, ...]:
    return ("convert", "model.onnx", "--to", "coreml", "--metadata", "onnxport=mine")


@case(2, "--metadata cannot set 'com.github.apple.coremltools.version'")
def metadata_of_coremltools(sandbox: Sandbox) -> tuple[str, ...]:
    key = "com.github.apple.coremltools.version"
    return ("convert", "model.onnx", "--to", "coreml", "--metadata", f"{key}=1")


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


def test_a_classifier_of_inputs_with_its_own_names(sandbox: Sandbox) -> None:
    """Core ML calls a classifier's outputs so: an input of that name has to give way."""
    rectified(sandbox, "classLabel", "classLabel_probs", [1, 3])
    (sandbox.folder / "labels.txt").write_text("a\nb\nc\n")
    outcome = sandbox.run("convert", "relu.onnx", "--to", "coreml", "--labels", "labels.txt")
    assert outcome.code == 0, outcome.stderr
    made = sandbox.folder / "relu.mlpackage" / MODEL
    description = messages("Model").Model.FromString(made.read_bytes()).description
    names = [feature.name for feature in (*description.input, *description.output)]
    assert names == ["classLabel_1", "classLabel", "classLabel_probs"]
