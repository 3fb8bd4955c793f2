"""The settled graph computes what the model does, in a form that integers can be placed in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxport.core.errors import CannotConvertError, InputError
from onnxport.formats.model import Model
from onnxport.quantize.calibration.session import write_tapped
from onnxport.quantize.float_graph import simplify_for_quantization
from tests.quantize.small import sqnr

_RNG = np.random.default_rng(7)
_WEIGHTS = {
    "w": _RNG.normal(size=(6, 4, 3, 3)).astype(np.float32),
    "point": _RNG.normal(size=(4, 6, 1, 1)).astype(np.float32),
    "grouped": _RNG.normal(size=(4, 2, 1, 1)).astype(np.float32),
    "up": _RNG.normal(size=(4, 6, 2, 2)).astype(np.float32),
    "bias": _RNG.normal(size=6).astype(np.float32),
    "channels": _RNG.normal(size=(6, 1, 1)).astype(np.float32),
    "gamma": _RNG.normal(size=6).astype(np.float32),
    "variance": (_RNG.random(6) + 0.5).astype(np.float32),
    "number": np.array([1.7], np.float32),
    "columns": _RNG.normal(size=(1, 1, 1, 8)).astype(np.float32),
}
# What a model computes, and the operators that it settles to.
_GRAPHS = {
    "number behind Conv": ("c = Conv (x, w) m = Mul (number, c) y = Add (m, number)", "Conv"),
    "channels behind Conv with a bias": (
        "c = Conv (x, w, bias) m = Sub (c, channels) y = Div (m, channels)",
        "Conv",
    ),
    "columns behind Conv": ("c = Conv (x, w) y = Mul (c, columns)", "Conv Mul"),
    "BatchNormalization behind ConvTranspose": (
        "c = ConvTranspose <strides = [2, 2]> (x, up, bias) "
        "y = BatchNormalization <epsilon = 0.01> (c, gamma, bias, gamma, variance)",
        "ConvTranspose",
    ),
    "a number added before Conv": (
        "c = Conv (x, w) t = Tanh (c) a = Add (t, channels) y = Conv (a, point)",
        "Conv Tanh Conv",
    ),
    "a number added before a grouped Conv": (
        "t = Tanh (x) a = Add (t, number) y = Conv <group = 2> (a, grouped)",
        "Tanh Conv",
    ),
    "a number added before a padded Conv": (
        "t = Tanh (x) a = Add (t, number) y = Conv <pads = [1, 1, 1, 1]> (a, w)",
        "Tanh Add Conv",
    ),
    "HardSwish": ("c = Conv (x, w) y = HardSwish (c)", "Conv HardSwish"),
    "HardSigmoid": ("c = Conv (x, w) y = HardSigmoid <alpha = 0.3, beta = 0.4> (c)", "Conv Clip Mul"),
    "HardSigmoid of an input": ("y = HardSigmoid (x)", "HardSigmoid"),
    "a result with two users": ("c = Conv (x, w) m = Mul (c, number) y = Sub (m, c)", "Conv Mul Sub"),
    "a weight of two nodes": (
        "c = Conv (x, w) d = Mul (c, number) t = Tanh (x) e = Conv (t, w) y = Sub (d, e)",
        "Conv Tanh Conv Sub",
    ),
}


def test_weights_beside_the_model_are_found_in_another_folder(tmp_path: Path) -> None:
    """As torch.onnx writes every model; ONNX Runtime leaves them where they are, by a relative name."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        network (float[2,4,10,10] x) => (float[n,c,h,w] y) { c = Conv (x, w, bias) y = Relu (c) }"""
    )
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(_WEIGHTS[n], n) for n in ("w", "bias"))
    source = tmp_path / "source" / "model.onnx"
    source.parent.mkdir()
    onnx.save(proto, source, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    (tmp_path / "other").mkdir()
    graph = simplify_for_quantization(Model.load(source), tmp_path / "other")
    found = {name: value.const_value for name, value in graph.model.graph.initializers.items()}
    for name in ("w", "bias"):
        tensor = found[name]
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), _WEIGHTS[name])
    x = _RNG.normal(size=(2, 4, 10, 10)).astype(np.float32)
    given, kept = (
        onnxruntime.InferenceSession(str(path)).run(None, {"x": x}) for path in (source, graph.path)
    )
    np.testing.assert_array_equal(given[0], kept[0])


@pytest.mark.parametrize("name", _GRAPHS)
def test_it_computes_the_same(name: str, tmp_path: Path) -> None:
    nodes, expected = _GRAPHS[name]
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 14]>
        network (float[2,4,10,10] x) => (float[n,c,h,w] y) {{ {nodes} }}"""
    )
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in _WEIGHTS.items())
    onnx.save(proto, tmp_path / "model.onnx")
    graph = simplify_for_quantization(Model.load(tmp_path / "model.onnx"), tmp_path)
    assert [node.op_type for node in graph.model.graph] == expected.split()
    names = [node.name for node in graph.model.graph]
    assert all(names)
    assert len(set(names)) == len(names)
    feeds = tuple({"x": _RNG.normal(size=(2, 4, 10, 10)).astype(np.float32)} for _ in range(2))
    assert sqnr(tmp_path / "model.onnx", graph.path, feeds) > 110
    graph.model.save(tmp_path / "again.onnx")
    assert sqnr(tmp_path / "model.onnx", tmp_path / "again.onnx", feeds) > 110


def test_weights_below_the_normal_range_are_kept(tmp_path: Path) -> None:
    """A convolution that stays float is compared with the source's: a face network was refused for a 0 in its place."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 14]>
        network (float[2,4,10,10] x) => (float[n,c,h,w] y) { y = Conv (x, w) }"""
    )
    weight = _WEIGHTS["w"].copy()
    weight[:, 0, 0, 0] = 1e-39
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, tmp_path / "model.onnx")
    graph = simplify_for_quantization(Model.load(tmp_path / "model.onnx"), tmp_path).model.graph
    (kept,) = (each.const_value.numpy() for each in graph.initializers.values() if each.shape == weight.shape)
    np.testing.assert_array_equal(kept, weight)


def test_weights_of_a_megabyte_lie_beside_the_graph_and_calibration_reads_them(tmp_path: Path) -> None:
    """Such a graph is read and written several times; the weights that the last rewriting changed lie apart, too."""
    weights = {
        "large": _RNG.normal(size=(256, 4, 20, 20)).astype(np.float32),
        "back": _RNG.normal(size=(6, 256, 1, 1)).astype(np.float32),
        "number": np.array([1.7], np.float32),
    }
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 14]>
        network (float[1,4,22,22] x) => (float[n,c,h,w] y)
        { a = Conv (x, large) t = Tanh (a) b = Conv (t, back) y = Mul (b, number) }"""
    )
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in weights.items())
    onnx.save(proto, tmp_path / "model.onnx")
    feeds = tuple({"x": _RNG.normal(size=(1, 4, 22, 22)).astype(np.float32)} for _ in range(2))
    graph = simplify_for_quantization(Model.load(tmp_path / "model.onnx"), tmp_path)
    assert [node.op_type for node in graph.model.graph] == ["Conv", "Tanh", "Conv"]
    stored = onnx.load(graph.path, load_external_data=False).graph.initializer
    assert all(each.external_data for each in stored if np.prod(each.dims) > 1000)
    assert graph.path.stat().st_size < 10_000
    assert sqnr(tmp_path / "model.onnx", graph.path, feeds) > 110
    write_tapped(graph.path, [graph.model.graph.outputs[0].name or ""], tmp_path / "tapped.onnx")
    assert sqnr(tmp_path / "model.onnx", tmp_path / "tapped.onnx", feeds) > 110
    graph.model.save(tmp_path / "again.onnx")
    assert sqnr(tmp_path / "model.onnx", tmp_path / "again.onnx", feeds) > 110


_FULL = """
import errno, resource, sys
from pathlib import Path
from onnxport.formats.model import Model
from onnxport.quantize.float_graph import simplify_for_quantization
model = Model.load(Path(sys.argv[1], "model.onnx"))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    simplify_for_quantization(model, Path(sys.argv[1]))
except OSError as error:
    print(errno.errorcode[error.errno])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of files")
@pytest.mark.parametrize("count", [40_000, 400_000])
def test_a_graph_that_cannot_be_written_is_told_as_the_system_does(count: int, tmp_path: Path) -> None:
    """Weights of a megabyte are written by another part of ONNX Runtime, which has another exception."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 14]>
        network (float[1,4] x) => (float[1,{count}] y) {{ y = MatMul (x, w) }}"""
    )
    weight = _RNG.normal(size=(4, count)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, tmp_path / "model.onnx")
    run = subprocess.run([sys.executable, "-c", _FULL, tmp_path], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["EFBIG"], run.stderr


def test_names_order_and_shapes_of_inputs_and_outputs_are_kept(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    network (float[batch,4] b, int64[batch] a) => (float[batch,4] second, int64[batch] first)
    <float[4,4] w = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}>
    { second = MatMul (b, w) first = Identity (a) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    source = Model.load(tmp_path / "model.onnx")
    graph = simplify_for_quantization(source, tmp_path)
    assert graph.model.inputs == source.inputs
    assert graph.model.outputs == source.outputs


def test_an_old_model_is_lifted_and_that_is_said(tmp_path: Path) -> None:
    text = """<ir_version: 4, opset_import: ["" : 9]>
    network (float[1,4] x) => (float[1,4] y) { z = Dropout (x) y = Relu (z) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    graph = simplify_for_quantization(Model.load(tmp_path / "model.onnx"), tmp_path)
    assert graph.model.opset == 14
    assert graph.notes == ("lifted from opset 9 to 14: quantized operators need 13",)


def test_the_model_that_is_given_is_left_alone(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 14]>
        network (float[2,4,10,10] x) => (float[n,c,h,w] y) { c = Conv (x, w) y = HardSwish (c) }"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(_WEIGHTS["w"], "w"))
    onnx.save(proto, tmp_path / "model.onnx")
    model = Model.load(tmp_path / "model.onnx")
    before = model.to_bytes()
    (tmp_path / "scratch").mkdir()
    simplify_for_quantization(model, tmp_path / "scratch", opset=21)
    assert model.to_bytes() == before


def test_what_onnx_runtime_does_not_know_is_refused(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "somebody" : 1]>
    network (float[1,4] x) => (float[1,4] y) { y = somebody.Thing (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    with pytest.raises((InputError, CannotConvertError), match="ONNX Runtime cannot load"):
        simplify_for_quantization(Model.load(tmp_path / "model.onnx"), tmp_path)


def test_weights_listed_as_inputs_that_nothing_reads_are_no_inputs(tmp_path: Path) -> None:
    """Old PyTorch lists all weights as inputs, the counters of batch norms among them."""
    proto = onnx.parser.parse_model(
        '<ir_version: 4, opset_import: ["" : 13]> g (float[1, 4] x, float[4, 3] w, int64 counter) => (float[1, 3] y)'
        " <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, int64 counter = {7}> { y = MatMul (x, w) }"
    )
    onnx.save(proto, tmp_path / "model.onnx")
    graph = simplify_for_quantization(Model.load(tmp_path / "model.onnx"), tmp_path).model.graph
    assert [value.name for value in graph.inputs] == ["x"]
