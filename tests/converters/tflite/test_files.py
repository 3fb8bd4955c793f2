"""Compiled files: their transposes, names, answers at other sizes, and bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from fixtures import graphs
from onnxport.core.child_process import Child
from onnxport.core.errors import CannotConvertError, MachineError
from onnxport.formats.model import Model
from onnxport.runtimes.litert import TfliteRuntime
from tests.conformance.tflite import Array, Conformance, difference
from tests.converters.tflite.models import model_of, run_onnx

IMAGE = np.random.default_rng(0).standard_normal((2, 3, 8, 10)).astype(np.float32)


def weights(**shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    random = np.random.default_rng(1)
    return [
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], output, **attributes)


def convolution_net(batch: str | int = 2) -> Model:
    """Convolution, normalization, activation, pooling, a branch, and a layer over the flattened features."""
    nodes = [
        node("Conv", "x w b", "conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "conv scale bias mean variance", "norm"),
        node("Relu", "norm", "active"),
        node("MaxPool", "active", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Sigmoid", "pool", "gate"),
        node("Mul", "pool gate", "gated"),
        node("Flatten", "gated", "flat"),
        node("Gemm", "flat dense", "y"),
    ]
    constants = weights(w=(4, 3, 3, 3), b=(4,), scale=(4,), bias=(4,), mean=(4,), dense=(80, 5))
    constants.append(numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32), "variance"))
    return model_of(nodes, {"x": IMAGE}, constants, open_dims={"x": [batch, 3, 8, 10]})


def all_images_net() -> Model:
    nodes = [
        node("Conv", "x w", "conv", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Clip", "conv low high", "clipped"),
        node("ConvTranspose", "clipped up", "larger", strides=[2, 2]),
        node("Concat", "larger x", "joined", axis=1),
        node("AveragePool", "joined", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    bounds = [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in (("low", 0), ("high", 6))]
    return model_of(nodes, {"x": IMAGE}, [*weights(w=(4, 3, 3, 3), up=(4, 2, 2, 2)), *bounds])


# ---- layout


@pytest.mark.parametrize("net", [convolution_net, all_images_net])
def test_a_convolution_net_keeps_one_transpose_per_image(
    conformance: Conformance, tmp_path: Path, net: Callable[[], Model]
) -> None:
    model = net()
    images = 1 + (net is all_images_net)  # the second net gives an image as well as taking one
    assert conformance.convert(model, tmp_path / "keep.tflite")["TRANSPOSE"] == images
    assert "TRANSPOSE" not in conformance.convert(model, tmp_path / "nhwc.tflite", "nhwc")


@pytest.mark.parametrize("layout", ["keep", "nhwc"])
def test_both_layouts_compute_the_same(conformance: Conformance, tmp_path: Path, layout: str) -> None:
    model = all_images_net()
    conformance.convert(model, tmp_path / "net.tflite", layout)
    expected = run_onnx(model, {"x": IMAGE})["y"]
    with TfliteRuntime(tmp_path / "net.tflite") as runtime:
        nhwc = (0, 2, 3, 1) if layout == "nhwc" else (0, 1, 2, 3)
        answer = runtime.run({"x": IMAGE.transpose(nhwc).copy()})["y"]
        assert runtime.permutations == ({"x": nhwc, "y": nhwc} if layout == "nhwc" else {})
    assert not difference(expected.transpose(nhwc), answer, atol=1e-5)


def test_flattened_features_reach_a_layer_without_a_transpose(
    conformance: Conformance, tmp_path: Path
) -> None:
    """A channels-last map flattens in another order than ONNX's; the layer's weights are permuted instead."""
    model = convolution_net()
    counted = conformance.convert(model, tmp_path / "net.tflite", "nhwc")
    assert "TRANSPOSE" not in counted
    (answer,) = conformance.convert_and_run(model, [{"x": IMAGE}])
    assert not difference(run_onnx(model, {"x": IMAGE})["y"], answer["y"], atol=1e-4)


def test_flattened_features_that_are_also_an_output_keep_onnx_order(conformance: Conformance) -> None:
    nodes = [node("Conv", "x w", "conv"), node("Flatten", "conv", "flat"), node("MatMul", "flat dense", "y")]
    model = model_of(nodes, {"x": IMAGE}, weights(w=(4, 3, 1, 1), dense=(320, 5)), outputs=["flat", "y"])
    (answer,) = conformance.convert_and_run(model, [{"x": IMAGE}])
    for name, expected in run_onnx(model, {"x": IMAGE}).items():
        assert not difference(expected, answer[name], atol=1e-4)


def test_attention_over_an_image_returns_to_it_with_one_transpose(
    conformance: Conformance, tmp_path: Path
) -> None:
    """[N, heads, H*W, size] becomes [N, C, H, W], which the convolution behind it wants as [N, H, W, C]."""
    nodes = [
        node("Transpose", "x", "turned", perm=[0, 1, 3, 2]),
        node("Reshape", "turned sizes", "image"),
        node("Conv", "image w", "conv"),
        node("ReduceMax", "conv axes", "y", keepdims=0),
    ]
    x = np.random.default_rng(0).standard_normal((1, 2, 12, 8)).astype(np.float32)
    integers = [
        numpy_helper.from_array(np.array(v), k) for k, v in (("sizes", [1, 16, 3, 4]), ("axes", [2, 3]))
    ]
    model = model_of(nodes, {"x": x}, [*weights(w=(5, 16, 1, 1)), *integers])
    assert conformance.convert(model, tmp_path / "net.tflite")["TRANSPOSE"] == 1
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    assert not difference(run_onnx(model, {"x": x})["y"], answer["y"], atol=1e-4)


def test_attention_over_windows_returns_to_its_layer_with_one_transpose(
    conformance: Conformance, tmp_path: Path
) -> None:
    """[N, windows, heads, patch, size] becomes [N, windows, patch, C]: sizes, last before, stay last."""
    nodes = [
        node("Transpose", "x", "turned", perm=[0, 1, 3, 2, 4]),
        node("Reshape", "turned sizes", "patches"),
        node("MatMul", "patches w", "y"),
    ]
    x = np.random.default_rng(0).standard_normal((1, 3, 2, 5, 4)).astype(np.float32)
    sizes = numpy_helper.from_array(np.array([1, 3, 5, 8]), "sizes")
    model = model_of(nodes, {"x": x}, [*weights(w=(8, 6)), sizes])
    assert conformance.convert(model, tmp_path / "net.tflite")["TRANSPOSE"] == 1
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    assert not difference(run_onnx(model, {"x": x})["y"], answer["y"], atol=1e-4)


def test_a_group_norm_between_convolutions_needs_no_transpose(
    conformance: Conformance, tmp_path: Path
) -> None:
    """PyTorch's exporters write it as InstanceNormalization of [N, groups, rest]."""
    nodes = [
        node("Conv", "x w", "conv"),
        node("Reshape", "conv groups", "grouped"),
        node("InstanceNormalization", "grouped scale bias", "norm"),
        node("Reshape", "norm sizes", "image"),
        node("Conv", "image v", "last"),
        node("ReduceMax", "last axes", "y", keepdims=0),
    ]
    integers = {"groups": [0, 3, -1], "sizes": [2, 6, 8, 10], "axes": [2, 3]}
    constants = [numpy_helper.from_array(np.array(v), k) for k, v in integers.items()]
    model = model_of(
        nodes, {"x": IMAGE}, [*weights(w=(6, 3, 1, 1), scale=(3,), bias=(3,), v=(5, 6, 1, 1)), *constants]
    )
    assert conformance.convert(model, tmp_path / "net.tflite")["TRANSPOSE"] == 1
    (answer,) = conformance.convert_and_run(model, [{"x": IMAGE}])
    assert not difference(run_onnx(model, {"x": IMAGE})["y"], answer["y"], atol=1e-4)


@pytest.mark.parametrize("sizes", [["N", 6, "L"], ["N", 6, "H", "W"], [2, 6, 3, 4, 5]])
def test_a_group_norm_runs_at_every_size(conformance: Conformance, sizes: list[int | str]) -> None:
    random = np.random.default_rng(5)
    feeds = [
        {
            "x": random.normal(3, 2, [at if isinstance(n, str) else n for n in sizes]).astype(np.float32),
            "scale": random.standard_normal(6).astype(np.float32),
            "bias": random.standard_normal(6).astype(np.float32),
        }
        for at in (2, 5)
    ]
    nodes = [node("GroupNormalization", "x scale bias", "y", num_groups=2, epsilon=1e-3)]
    model = model_of(nodes, feeds[0], [], open_dims={"x": sizes})
    for feed, answer in zip(feeds, conformance.convert_and_run(model, feeds), strict=True):
        assert not difference(run_onnx(model, feed)["y"], answer["y"], atol=1e-4)


def test_a_residual_stream_returns_to_the_order_of_its_layers(
    conformance: Conformance, tmp_path: Path
) -> None:
    """Patches of an image arrive in another order than ONNX's, which the first layer's Add must not pass on."""
    nodes = [node("Transpose", "x", "s0", perm=[2, 1, 0])]
    for layer in range(3):
        nodes += [
            node("MatMul", f"s{layer} w", f"product{layer}"),
            node("Relu", f"product{layer}", f"relu{layer}"),
            node("Add", f"s{layer} relu{layer}", f"s{layer + 1}"),
        ]
    x = np.random.default_rng(0).standard_normal((6, 5, 4)).astype(np.float32)
    model = model_of(nodes, {"x": x}, weights(w=(6, 6)), outputs=["s3"])
    assert conformance.convert(model, tmp_path / "net.tflite")["TRANSPOSE"] == 1
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    assert not difference(run_onnx(model, {"x": x})["s3"], answer["s3"], atol=1e-4)


# ---- sizes


def test_an_open_batch_runs_at_one_and_at_three(conformance: Conformance) -> None:
    model = convolution_net("N")
    feeds = [{"x": np.repeat(IMAGE[:1], count, axis=0) * scale} for count, scale in ((1, 1), (3, 2), (2, 1))]
    for feed, answer in zip(feeds, conformance.convert_and_run(model, feeds), strict=True):
        assert not difference(run_onnx(model, feed)["y"], answer["y"], atol=1e-4)


# ---- names


def written_out_layer() -> Model:
    """A matrix product, its bias, and a Gelu in five nodes, which the compiler and we fuse."""
    nodes = [
        node("MatMul", "x dense", "product"),
        node("Add", "product bias", "sum"),
        node("Div", "sum root", "scaled"),
        node("Erf", "scaled", "erf"),
        node("Add", "erf one", "raised"),
        node("Mul", "sum raised", "doubled"),
        node("Mul", "doubled half", "gelu"),
        node("MatMul", "gelu last", "y"),
    ]
    numbers = {"root": 2**0.5, "one": 1, "half": 0.5}
    scalars = [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in numbers.items()]
    return model_of(nodes, {"x": IMAGE}, [*weights(dense=(10, 6), bias=(6,), last=(6, 2)), *scalars])


@pytest.mark.parametrize(
    ("net", "kept"),
    [
        (convolution_net, ["active", "pool", "gate", "gated"]),  # conv and norm are fused into active
        (all_images_net, ["clipped", "larger", "joined"]),
        (written_out_layer, ["sum", "gelu"]),  # product is fused into sum, and must not pass for it
    ],
)
def test_taps_hold_the_values_of_the_source(
    conformance: Conformance, tmp_path: Path, net: Callable[[], Model], kept: list[str]
) -> None:
    model = net()
    conformance.convert(model, tmp_path / "net.tflite")
    with TfliteRuntime(tmp_path / "net.tflite") as runtime:
        assert runtime.taps >= set(kept)
        taps = sorted(runtime.taps - {"y"})
        answer = runtime.run({"x": IMAGE}, taps=taps)
    for name, expected in run_onnx(with_outputs(model, taps), {"x": IMAGE}).items():
        assert not difference(expected, answer[name], atol=1e-5), name


def test_a_written_out_gelu_is_one_op(conformance: Conformance, tmp_path: Path) -> None:
    counted = conformance.convert(written_out_layer(), tmp_path / "net.tflite")
    assert counted == {"FULLY_CONNECTED": 2, "GELU": 1}
    (answer,) = conformance.convert_and_run(written_out_layer(), [{"x": IMAGE}])
    assert not difference(run_onnx(written_out_layer(), {"x": IMAGE})["y"], answer["y"], atol=1e-5)


def with_outputs(model: Model, names: list[str]) -> Model:
    proto = onnx.load_from_string(model.to_bytes() or b"")
    proto.graph.ClearField("output")
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return model_of(proto.graph.node, {"x": IMAGE}, proto.graph.initializer, outputs=names)


def test_names_that_the_format_cannot_carry_survive(conformance: Conformance) -> None:
    nodes = [
        node("Relu", "x", "a,b"),
        helper.make_node("Exp", ["a,b"], ["a;b"]),
        helper.make_node("Neg", ["a;b"], ["a b"]),
        helper.make_node("Abs", ["a b"], ["a_b"]),
    ]
    model = model_of(nodes, {"x": IMAGE}, outputs=["a,b", "a;b", "a b", "a_b"])
    (answer,) = conformance.convert_and_run(model, [{"x": IMAGE}])
    for name, expected in run_onnx(model, {"x": IMAGE}).items():
        assert not difference(expected, answer[name], atol=1e-5), name


EYE = numpy_helper.from_array(np.eye(3, dtype=np.float32), "eye")


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([node("Identity", "x", "y")], ["y"]),
        ([node("Identity", "x", "y"), node("Identity", "x", "z")], ["y", "z"]),
        ([node("Relu", "x", "t"), node("Identity", "t", "y"), node("Identity", "t", "z")], ["y", "z"]),
        ([node("Relu", "x", "t"), node("Identity", "t", "y")], ["t", "y"]),
        ([node("Relu", "x", "y")], ["y", "eye"]),
        ([node("Relu", "x", "y"), node("Identity", "eye", "z")], ["z", "y"]),
        ([node("Identity", "eye", "y")], ["y"]),
    ],
    ids=[
        "input is output",
        "input is two outputs",
        "one value is two outputs",
        "output is used",
        "constant is output",
        "constant first",
        "input is unused",
    ],
)
def test_any_value_can_be_an_output(
    conformance: Conformance, nodes: list[onnx.NodeProto], outputs: list[str]
) -> None:
    model = model_of(nodes, {"x": IMAGE}, [EYE], outputs=outputs)
    (answer,) = conformance.convert_and_run(model, [{"x": IMAGE}])
    assert list(answer) == outputs
    for name, expected in run_onnx(model, {"x": IMAGE}).items():
        assert not difference(expected, answer[name])


# ---- refusals and failures


def test_all_nodes_without_an_equivalent_are_named_at_once(conformance: Conformance, tmp_path: Path) -> None:
    path = tmp_path / "strings.onnx"
    onnx.save(graphs.two_unsupported(), path)
    with pytest.raises(CannotConvertError) as caught:
        conformance.convert(Model.load(path), tmp_path / "strings.tflite")
    assert {refusal.node for refusal in caught.value.refusals} >= {"pre/join", "pre/match"}
    assert not (tmp_path / "strings.tflite").exists()


def test_a_refusal_downstream_of_another_is_named_too(conformance: Conformance, tmp_path: Path) -> None:
    # No two runtimes draw the same numbers.
    nodes = [
        node("RandomNormalLike", "x", "drawn"),
        node("Relu", "drawn", "kept"),
        node("RandomUniformLike", "kept", "y"),
    ]
    with pytest.raises(CannotConvertError) as caught:
        conformance.convert(model_of(nodes, {"x": IMAGE}), tmp_path / "net.tflite")
    assert [refusal.node for refusal in caught.value.refusals] == ["drawn", "y"]


class Crashing:
    """Asks the compiler to fold a division by zero, which ends its process with SIGFPE."""

    def crash(self) -> None:
        from litert_converter import converter_api_ext
        from litert_converter.mlir import ir, passmanager
        from litert_converter.mlir.dialects import func

        from onnxport.converters.tflite.builder import TflBuilder

        tfl = TflBuilder()
        with tfl.context, ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                function = func.FuncOp("main", ir.FunctionType.get([], []))
                block = function.add_entry_block()
            with tfl.emitting_into(block):
                quotient = tfl.op("div", [tfl.int32([1]), tfl.int32([0])], [1])
                ir.Operation.create("func.return", operands=[quotient])
            function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([], [quotient.type]))
            config = converter_api_ext.ConvertToTFLConfig()
            converter_api_ext.run_convert_to_tfl_passes(module, passmanager.PassManager(), config)


def test_a_compiler_that_crashes_is_an_error_message() -> None:
    target = "tests.converters.tflite.test_files:Crashing"
    message = r"the LiteRT compiler crashed \(signal SIGFPE\)"
    with (
        Child(target, purpose="the LiteRT compiler") as child,
        pytest.raises(MachineError, match=message),
    ):
        child.call("crash")


def test_integer_division_by_a_constant_zero_never_reaches_the_compiler(
    conformance: Conformance, tmp_path: Path
) -> None:
    feeds: dict[str, Array] = {"x": np.array([4, 6], np.int32)}
    zero = numpy_helper.from_array(np.array([2, 0], np.int32), "zero")
    with pytest.raises(CannotConvertError, match="divides integers by zero"):
        conformance.convert(model_of([node("Div", "x zero", "y")], feeds, [zero]), tmp_path / "y.tflite")


def test_the_same_model_gives_the_same_bytes(conformance: Conformance, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("first.tflite", "second.tflite")]
    for file in files:
        conformance.convert(convolution_net(), file)
    with Conformance() as another:  # another process, with another hash seed
        another.convert(convolution_net(), tmp_path / "third.tflite")
    first, *others = [file.read_bytes() for file in (*files, tmp_path / "third.tflite")]
    assert all(other == first for other in others)
