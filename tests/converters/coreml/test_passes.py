"""Passes leave fewer operators and the same numbers, in every intermediate value that can still be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from onnxport.formats.model import Model
from onnxport.runtimes.mlprogram import MilRuntime
from tests.conformance.harness import Array
from tests.converters.coreml.packages import convert, evaluate, spec_of
from tests.converters.tflite.models import model_of, run_onnx

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(2, 4, 6, 6)).astype(np.float32)


def weight(name: str, *shape: int, positive: bool = False) -> onnx.TensorProto:
    numbers = RANDOM.normal(size=shape)
    return numpy_helper.from_array((np.abs(numbers) + 0.5 if positive else numbers).astype(np.float32), name)


def norm(x: str, y: str) -> onnx.NodeProto:
    return helper.make_node("BatchNormalization", [x, "s", "b", "m", "v"], [y])


def norm_weights(channels: int) -> list[onnx.TensorProto]:
    return [
        weight("s", channels),
        weight("b", channels),
        weight("m", channels),
        weight("v", channels, positive=True),
    ]


def convolved(
    *after: onnx.NodeProto, op: str = "Conv", shape: Sequence[int] = (6, 4, 3, 3), group: int = 1
) -> Model:
    channels = shape[0] if op == "Conv" else shape[1] * group
    nodes = [helper.make_node(op, ["x", "w"], ["c"], group=group), *after]
    more = [weight("k", channels, 1, 1), weight("one", 1)]
    return model_of(nodes, {"x": X}, [weight("w", *shape), *norm_weights(channels), *more])


FOLDED = {
    "norm": lambda: convolved(norm("c", "y")),
    "norm, scale and shift": lambda: convolved(
        norm("c", "n"),
        helper.make_node("Mul", ["n", "k"], ["t"]),
        helper.make_node("Add", ["one", "t"], ["y"]),
    ),
    "difference and quotient": lambda: convolved(
        helper.make_node("Sub", ["c", "k"], ["t"]), helper.make_node("Div", ["t", "k"], ["y"])
    ),
    "grouped": lambda: convolved(norm("c", "y"), shape=(6, 2, 3, 3), group=2),
    "transposed": lambda: convolved(norm("c", "y"), op="ConvTranspose", shape=(4, 3, 2, 2)),
    "transposed and grouped": lambda: convolved(
        norm("c", "y"), op="ConvTranspose", shape=(4, 3, 2, 2), group=2
    ),
}


@pytest.mark.parametrize("case", FOLDED)
def test_what_scales_and_shifts_channels_is_part_of_the_convolution(case: str, tmp_path: Path) -> None:
    model = FOLDED[case]()
    wanted = run_onnx(model, {"x": X})["y"]
    compiled = convert(model, tmp_path / "m.mlpackage")
    assert sum(compiled.operators.values()) == 1, compiled.operators
    np.testing.assert_allclose(
        evaluate(tmp_path / "m.mlpackage", {"x": X})["y"], wanted, rtol=2e-5, atol=2e-5
    )


def test_a_convolution_that_is_read_elsewhere_keeps_its_weights(tmp_path: Path) -> None:
    model = convolved(norm("c", "n"), helper.make_node("Add", ["n", "c"], ["y"]))
    wanted = run_onnx(model, {"x": X})["y"]
    convert(model, tmp_path / "m.mlpackage")
    np.testing.assert_allclose(
        evaluate(tmp_path / "m.mlpackage", {"x": X})["y"], wanted, rtol=2e-5, atol=2e-5
    )


def test_scales_and_shifts_without_a_convolution_become_one_norm(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        norm("r", "n"),
        helper.make_node("Mul", ["n", "k"], ["t"]),
        helper.make_node("Add", ["t", "k"], ["y"]),
    ]
    model = model_of(nodes, {"x": X}, [*norm_weights(4), weight("k", 4, 1, 1)])
    wanted = run_onnx(model, {"x": X})["y"]
    compiled = convert(model, tmp_path / "m.mlpackage")
    assert compiled.operators == {"relu": 1, "batch_norm": 1}
    np.testing.assert_allclose(
        evaluate(tmp_path / "m.mlpackage", {"x": X})["y"], wanted, rtol=1e-5, atol=1e-5
    )


def test_a_product_beyond_float16_stays_where_it_is(tmp_path: Path) -> None:
    big = numpy_helper.from_array(np.full((6, 1, 1), 3e4, np.float32), "big")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Mul", ["c", "big"], ["y"])]
    large = numpy_helper.from_array(np.full((6, 4, 1, 1), 7.0, np.float32), "w")
    compiled = convert(model_of(nodes, {"x": X}, [large, big]), tmp_path / "m.mlpackage", precision="fp16")
    assert compiled.operators["mul"] == 1


def channels_last_model() -> Model:
    """As exported from TensorFlow: transposes around what does not care for the order of axes, and around what does."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["last"], perm=[0, 2, 3, 1]),
        helper.make_node("Relu", ["last"], ["r"]),
        helper.make_node("Add", ["r", "k"], ["a"]),
        helper.make_node("Transpose", ["a"], ["first"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["first", "w"], ["c"]),
        norm("c", "n"),
        helper.make_node("Identity", ["n"], ["i"]),
        helper.make_node("Sigmoid", ["i"], ["g"]),
        helper.make_node("Transpose", ["g"], ["back"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["back", "flat"], ["f"]),
        helper.make_node("Reshape", ["f", "other"], ["h"]),
        helper.make_node("Tanh", ["h"], ["y"]),
    ]
    given = {"flat": [2, -1], "other": [2, 4, -1]}
    shapes = [numpy_helper.from_array(np.array(dims), name) for name, dims in given.items()]
    # Square in all axes, so that a transposed value would have the right shape.
    return model_of(nodes, {"x": RANDOM.normal(size=(2, 4, 4, 4)).astype(np.float32)}, [
        weight("w", 4, 4, 1, 1), weight("k", 4), *norm_weights(4), *shapes
    ])  # fmt: skip


def test_every_value_that_can_still_be_seen_is_the_sources(tmp_path: Path) -> None:
    model = channels_last_model()
    feeds: dict[str, Array] = {"x": RANDOM.normal(size=(2, 4, 4, 4)).astype(np.float32)}
    names = [value.name for node in model.graph for value in node.outputs if value.name]
    proto = onnx.load_from_string(model.to_bytes())
    outputs = {output.name for output in proto.graph.output}
    proto.graph.output.extend(
        helper.make_empty_tensor_value_info(name) for name in names if name not in outputs
    )
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    convert(model, tmp_path / "m.mlpackage")
    with MilRuntime(tmp_path / "m.mlpackage") as runtime:
        seen = runtime.run(feeds, taps=sorted(runtime.taps))
        assert len(runtime.taps) >= 3
    for name, value in seen.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_coremltools_loads_what_the_passes_leave(tmp_path: Path) -> None:
    """Its own reader infers every type anew and checks every operator's parameters."""
    from coremltools.converters.mil.frontend.milproto.load import load

    package = tmp_path / "m.mlpackage"
    convert(channels_last_model(), package)
    program = load(spec_of(package), 8, str(package / "Data/com.apple.CoreML/weights"))
    program.validate()


def test_equal_constants_stand_in_the_package_once(tmp_path: Path) -> None:
    same = RANDOM.normal(size=(4, 4, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1] * 4)]
    nodes.append(helper.make_node("Conv", ["c", "w2"], ["y"], pads=[1] * 4))
    weights = [numpy_helper.from_array(same, name) for name in ("w1", "w2")]
    convert(model_of(nodes, {"x": X}, weights), tmp_path / "m.mlpackage")
    stored = (tmp_path / "m.mlpackage/Data/com.apple.CoreML/weights/weight.bin").stat().st_size
    assert stored < 2 * same.nbytes
    (function,) = spec_of(tmp_path / "m.mlpackage").mlProgram.functions.values()
    (block,) = function.block_specializations.values()
    values = [each.attributes["val"].SerializeToString() for each in block.operations if each.type == "const"]
    assert len(values) == len(set(values))


CONVERT = """
import sys
from pathlib import Path
from tests.converters.coreml.packages import convert
from onnxport.formats.model import Model
convert(Model.load(Path(sys.argv[1])), Path(sys.argv[2]), precision="fp16")
"""


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    channels_last_model().save(tmp_path / "m.onnx")
    written = []
    for seed in ("1", "2"):
        package = tmp_path / f"{seed}.mlpackage"
        command = [sys.executable, "-c", CONVERT, str(tmp_path / "m.onnx"), str(package)]
        home = Path(__file__).parents[3]
        subprocess.run(command, check=True, cwd=home, env=os.environ | {"PYTHONHASHSEED": seed})
        written.append(
            {str(f.relative_to(package)): f.read_bytes() for f in package.rglob("*") if f.is_file()}
        )
    assert written[0] == written[1]
    assert len(written[0]) == 3
