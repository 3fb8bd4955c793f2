"""A quantized `.mlpackage` is proven to be its float ONNX source, or what is wrong with it is named."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxport
from onnxport.core.errors import InputError
from onnxport.formats.model import Model
from onnxport.runtimes.base import RunError
from onnxport.validate.translation.proof import Proof

pytest.importorskip("coremltools")
from onnxport.validate.translation.mlpackage import operators
from onnxport.validate.translation.mlpackage.artefact import prove_mlpackage
from tests.validate.translation import branches
from tests.validate.translation.mlpackage_faults import FAULTS, NoPlace, put

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits"
SOURCE = DIGITS / "digits.onnx"
SIZES = {"image": (1, 1, 8, 8)}
Array = np.ndarray[Any, np.dtype[Any]]
# What has integers between the nodes; Core ML computes those of 16 bits as floats.
GRIDS = ("int8", "int16x8")


def images(count: int = 2) -> list[dict[str, Array]]:
    with np.load(DIGITS / "test.npz") as stored:
        return [{"image": stored["image"][place : place + 1]} for place in range(count)]


class Made(dict[str, Path]):
    """A network with a batch of one, made when a test asks for its precision."""

    def __init__(self, folder: Path, source: Path, inputs: list[dict[str, Array]]) -> None:
        super().__init__()
        self.folder, self.source, self.inputs, self.samples = folder, source, inputs[:2], folder / "samples"
        self.samples.mkdir()
        for number, each in enumerate(inputs):
            np.savez(self.samples / f"{number:02}.npz", **each)

    def __missing__(self, precision: str) -> Path:
        between, made = (self.folder / f"{precision}{suffix}" for suffix in (".onnx", ".mlpackage"))
        options: dict[str, Any] = {"calib": self.samples} if precision in GRIDS else {}
        onnxport.quantize_model(self.source, precision, between, validate=False, **options)
        target: dict[str, Any] = {"minimum_target": "iOS18"} if precision == "int4-weights" else {}
        sizes = {name: array.shape for name, array in self.inputs[0].items()}
        onnxport.convert_model(between, "coreml", made, validate=False, shape=sizes, **target)
        self[precision] = made
        return made

    def proof(self, path: Path) -> Proof:
        return prove_mlpackage(Model.load(self.source), path, self.inputs)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("mlpackage"), SOURCE, images(20))


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("branches")
    return Made(folder, branches.write(folder / "branches.onnx"), branches.samples(20))


def proof(path: Path) -> Proof:
    return prove_mlpackage(Model.load(SOURCE), path, images())


@pytest.mark.parametrize("precision", ["int8", "int16x8", "dynamic", "int8-weights", "int4-weights"])
def test_a_right_package_is_proven(precision: str, made: Made) -> None:
    found = proof(made[precision])
    assert list(found.findings) == []
    nodes = onnx.load(SOURCE).graph.node
    assert found.weights == sum(node.op_type in ("Conv", "Gemm", "MatMul") for node in nodes)
    assert (found.arithmetic.compared > 0) == (precision in GRIDS)


def test_weights_that_coremltools_rounded_are_proven(tmp_path: Path) -> None:
    output = tmp_path / "digits.mlpackage"
    onnxport.convert_model(SOURCE, "coreml", output, validate=False, shape=SIZES, weights="int8")
    assert list(proof(output).findings) == []


@pytest.mark.parametrize("precision", ["int8", "int16x8", "int8-weights"])
def test_a_right_package_with_branches_is_proven(precision: str, branched: Made) -> None:
    assert list(branched.proof(branched[precision]).findings) == []


# Precision -> faults of operators that its packages do not have: an 8-bit grid begins at 0 in place of a Relu, and
# `quantize` rounds and clips; for 16 bits operators of their own do.
ABSENT = {
    "int8": {"activation_dropped", "activation_replaced", "rounding_dropped", "grid_saturates_early"},
    "int16x8": set[str](),
    "int8-weights": {name for name in FAULTS if name.startswith(("grid", "rounding"))},
}


@pytest.mark.parametrize(
    ("precision", "name"),
    [(precision, name) for precision, absent in ABSENT.items() for name in FAULTS if name not in absent],
)
def test_a_fault_is_found(precision: str, name: str, made: Made, branched: Made, tmp_path: Path) -> None:
    place, broken = made, tmp_path / "broken.mlpackage"
    try:
        put(FAULTS[name], made[precision], broken)
    except NoPlace:
        place, broken = branched, tmp_path / "branched.mlpackage"
        put(FAULTS[name], branched[precision], broken)
    with contextlib.suppress(RunError, InputError):  # the reader refuses some
        assert place.proof(broken).findings


def test_the_command_proves_a_package_and_names_a_changed_weight(made: Made, tmp_path: Path) -> None:
    report = onnxport.validate_model(SOURCE, made["int8"], inputs=made.samples)
    assert [each.verdict for each in report.judgements if each.question == "translation"] == ["proven"]
    broken = put(FAULTS["weight_sign"], made["int8"], tmp_path / "broken.mlpackage")
    report = onnxport.validate_model(SOURCE, broken, inputs=made.samples)
    assert report.verdict == "not equivalent"
    assert "weights are more than half a step from the source's" in report.reason


def test_an_unknown_operator_is_named_and_no_fault(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: lift for name, lift in operators.OPERATORS.items() if name != "max_pool"}
    monkeypatch.setattr(operators, "OPERATORS", known)
    found = proof(made["int8-weights"])
    assert "max_pool is not known here" in [each.text for each in found.findings]
    assert not found.faults


def test_a_package_that_takes_images_is_not_compared(tmp_path: Path) -> None:
    output = tmp_path / "digits.mlpackage"
    image = {"image": "layout:GRAYSCALE"}
    onnxport.convert_model(SOURCE, "coreml", output, validate=False, shape=SIZES, weights="int8", image=image)
    with pytest.raises(InputError, match="take images"):
        proof(output)


def _weight(name: str, *shape: int) -> onnx.TensorProto:
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(array, name)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("written", ["operator", "formula"])
def test_a_hard_swish_is_proven_however_it_is_written(written: str, reverse: bool, tmp_path: Path) -> None:
    """MIL has x * sigmoid_hard(x) for it."""
    formula = [
        helper.make_node("Add", ["a", "three"], ["moved"]),
        helper.make_node("Clip", ["moved", "zero", "six"], ["gate"]),
        helper.make_node("Mul", ["gate", "a"] if reverse else ["a", "gate"], ["product"]),
        helper.make_node("Div", ["product", "six"], ["b"]),
    ]
    swish = [helper.make_node("HardSwish", ["a"], ["b"])] if written == "operator" else formula
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "variance"], ["a"]),
        *swish,
        helper.make_node("Conv", ["b", "w"], ["y"]),
    ]
    numbers = {"zero": 0.0, "three": 3.0, "six": 6.0}
    constants = [numpy_helper.from_array(np.float32(each), name) for name, each in numbers.items()]
    norm = [_weight(each, 16) for each in ("scale", "bias", "mean")]
    norm.append(numpy_helper.from_array(np.linspace(0.5, 2, 16, dtype=np.float32), "variance"))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 8, 12, 12))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 8, 8, 8))],
        [*constants, *norm, _weight("v", 16, 8, 3, 3), _weight("w", 8, 16, 3, 3)],
    )
    source, between, made = (tmp_path / f"m{suffix}" for suffix in (".onnx", ".int8.onnx", ".mlpackage"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), source)
    onnxport.quantize_model(source, "int8-weights", between, validate=False)
    onnxport.convert_model(between, "coreml", made, validate=False)
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 8, 12, 12)).astype(np.float32)}
    assert list(prove_mlpackage(Model.load(source), made, [feeds]).findings) == []


def test_scales_of_channels_beside_grids_of_16_bits_are_proven(tmp_path: Path) -> None:
    """The package keeps the grid's scale apart from that of the channels, whose product would be neither."""
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node("HardSwish", ["a"], ["gated"]),
        helper.make_node("Mul", ["gated", "scale"], ["b"]),
        helper.make_node("Add", ["b", "shift"], ["c"]),
        helper.make_node("Conv", ["c", "w"], ["y"]),
    ]
    constants = [_weight("v", 16, 8, 3, 3), _weight("w", 8, 16, 3, 3)]
    constants += [_weight("scale", 1, 16, 1, 1), _weight("shift", 1, 16, 1, 1)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 8, 12, 12))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 8, 8, 8))],
        constants,
    )
    source, between, made = (tmp_path / f"m{suffix}" for suffix in (".onnx", ".int16.onnx", ".mlpackage"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), source)
    draw = np.random.default_rng(1)
    feeds = [{"x": draw.standard_normal((1, 8, 12, 12)).astype(np.float32)} for _ in range(3)]
    (samples := tmp_path / "samples").mkdir()
    for number, each in enumerate(feeds):
        np.savez(samples / f"{number}.npz", **each)
    onnxport.quantize_model(source, "int16x8", between, calib=samples, validate=False)
    onnxport.convert_model(between, "coreml", made, validate=False)
    found = prove_mlpackage(Model.load(source), made, feeds)
    assert list(found.findings) == []
    assert found.arithmetic.compared > 0
