"""What a message proposes with a name of the model in it runs nothing else where it is pasted, and means that name."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.sandbox import DIGITS
from tests.hostile.attacking import Target

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="pastes into bash")

FLOAT = TensorProto.FLOAT
NAMES = {
    "plain": "x'; touch pwned; $(touch pwned) `touch pwned` # \"",
    "lines": "x\ntouch pwned\r'\x1b[2J\u202e$(touch pwned)",
}


def _save(
    target: Target, name: str, file: str = "bad.onnx", op: str = "Relu", dims: Sequence[object] = ("N", "M")
) -> str:
    """Write a model of one node that gives `y` from an input of this name."""
    ends = [helper.make_tensor_value_info(each, FLOAT, list(dims)) for each in (name, "y")]
    graph = helper.make_graph([helper.make_node("Relu", [name], ["y"], name)], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, target.folder / file)
    return file


Prepare = Callable[[Target, str], tuple[str, ...]]
CASES: dict[str, tuple[str, str, Prepare]] = {}


def proposes(begin: str, end: str = "") -> Callable[[Prepare], Prepare]:
    """Register a command whose message has the proposal from `begin` to `end`, or to the end of the line."""

    def register(prepare: Prepare) -> Prepare:
        CASES[prepare.__name__] = begin, end, prepare
        return prepare

    return register


@proposes("--shape ")
def memory_of_open_sizes(target: Target, name: str) -> tuple[str, ...]:
    return ("inspect", _save(target, name), "--plan")


@proposes("--shape ", ", or your own")
def timing_of_open_sizes(target: Target, name: str) -> tuple[str, ...]:
    return ("bench", _save(target, name))


@proposes("--shape ")
def bounds_of_coreml(target: Target, name: str) -> tuple[str, ...]:
    return ("convert", _save(target, name), "--to", "coreml", "-o", "out.mlpackage", "--no-validate")


@proposes("--shape ")
def sizes_for_a_gpu(target: Target, name: str) -> tuple[str, ...]:
    return ("convert", _save(target, name), "--to", "tflite", "--fit", "gpu", "-o", "out.tflite")


@proposes("--map ")
def other_names(target: Target, name: str) -> tuple[str, ...]:
    return ("validate", _save(target, "a", "one.onnx"), _save(target, name))


@proposes("--shape ")
def other_sizes(target: Target, name: str) -> tuple[str, ...]:
    return ("validate", _save(target, name, "one.onnx"), _save(target, name, dims=(2, 3)))


@proposes("--inputs ")
def part_that_needs_more(target: Target, name: str) -> tuple[str, ...]:
    ends = [helper.make_tensor_value_info(each, FLOAT, [2]) for each in ("a", name, "y")]
    nodes = [helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Add", ["b", name], ["y"])]
    graph = helper.make_graph(nodes, "g", ends[:2], ends[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, target.folder / "bad.onnx")
    return ("extract", "bad.onnx", "--inputs", "b", "--outputs", "y", "-o", "part.onnx")


@proposes("onnxport extract ")
def part_that_converts(target: Target, name: str) -> tuple[str, ...]:
    text = TensorProto.STRING
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["a", "w"], [name]),
        helper.make_node("Cast", [name], ["words"], to=text),
        helper.make_node("StringConcat", ["words", "words"], ["y"], "join"),
    ]
    ends = [
        helper.make_tensor_value_info("a", FLOAT, [2, 4]),
        helper.make_tensor_value_info("y", text, [2, 4]),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, target.folder / "bad.onnx")
    return ("convert", "bad.onnx", "--to", "tflite", "-o", "out.tflite")


@proposes("--shape ")
def state_of_open_sizes(target: Target, name: str) -> tuple[str, ...]:
    _save(target, name)
    options = ("--minimum-target", "iOS18", "--precision", "fp16", "--state", f"{name}=y")
    return ("convert", "bad.onnx", "--to", "coreml", "-o", "out.mlpackage", *options)


@proposes("mkdir -p ")
def folder_that_is_not_there(target: Target, name: str) -> tuple[str, ...]:
    _save(target, "x")
    return ("optimize", "bad.onnx", "-o", f"{name}/out.onnx")


@proposes("onnxport diff ")
def model_that_comes_second(target: Target, name: str) -> tuple[str, ...]:
    shutil.copy(DIGITS.parents[1] / "digits" / "digits.onnx", target.folder / f"{name}.onnx")
    assert not target.run("convert", f"{name}.onnx", "--to", "ort", "-o", "a.ort", "--no-validate").code
    return ("diff", "a.ort", f"{name}.onnx")


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_a_pasted_proposal_is_one_command(case: str, kind: str, target: Target, tmp_path: Path) -> None:
    begin, end, prepare = CASES[case]
    name = NAMES[kind]
    run = target.run(*prepare(target, name), timeout=120)
    (line,) = [each for each in (run.stdout + run.stderr).split("\n") if begin in each]
    assert line.isprintable()
    proposed = begin + line.rpartition(begin)[2]
    if end:
        assert end in proposed
        proposed = proposed.partition(end)[0]
    place = tmp_path / "shell"
    place.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {proposed}"],
        cwd=place,
        capture_output=True,
        check=True,
        env=environment,
    )
    assert not list(place.iterdir()), proposed
    words = done.stdout.decode().split("\0")
    assert any(name in word for word in words), words
