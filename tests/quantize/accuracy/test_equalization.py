"""Channels that reach less far than others keep their accuracy without a node more, and the proof follows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxport
from benchmarks.quantizing import scoring
from benchmarks.quantizing.nets import NETS
from onnxport.formats.model import Model
from onnxport.formats.quantization_note import NOTE_KEY, QuantizationNote
from onnxport.quantize.accuracy.rounding_error import Spread
from onnxport.quantize.tensor_summary import TensorSummary
from onnxport.validate.translation.proof import prove
from tests.quantize.small import Case, case

_RNG = np.random.default_rng(4)
# Of 8 channels, one reaches 100 times as far as the others, which the second product makes up for.
_REACH = np.where(np.arange(8) == 3, 10.0, 0.1).astype(np.float32)
_WEIGHTS = {
    "first": _RNG.normal(size=(8, 3, 3, 3)).astype(np.float32) * _REACH[:, None, None, None],
    "branch": _RNG.normal(size=(8, 3, 3, 3)).astype(np.float32) * _REACH[:, None, None, None],
    "depthwise": _RNG.normal(size=(8, 1, 3, 3)).astype(np.float32) / _REACH[:, None, None, None],
    "second": _RNG.normal(size=(5, 8, 1, 1)).astype(np.float32) / _REACH[:, None, None],
    "dense": (_RNG.normal(size=(8, 36, 5)) / _REACH[:, None, None]).reshape(288, 5).astype(np.float32),
    "slope": np.full((8, 1, 1), 0.25, np.float32),
    "gate": _RNG.normal(size=(8, 3, 1, 1)).astype(np.float32),
    "both": _RNG.normal(size=(5, 16, 1, 1)).astype(np.float32),
    "across": _RNG.normal(size=(5, 12, 1, 1)).astype(np.float32),
}
# What stands between two products, and the SQNR of a grid whose channels all have their steps.
_NETWORKS = {
    "relu": ("r = Relu (a) y = Conv (r, second)", 35),
    "depthwise": ("r = Relu (a) y = Conv <group = 8> (r, depthwise)", 35),
    "prelu": ("r = PRelu (a, slope) y = Conv (r, second)", 30),
    "pool": (
        "r = Relu (a) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r) y = Conv (p, second)",
        35,
    ),
    "sum": (
        "b = Conv <pads = [1, 1, 1, 1]> (x, branch) s = Add (a, b) r = Relu (s) y = Conv (r, second)",
        32,
    ),
    "gate": (
        "r = Relu (a) m = GlobalAveragePool (x) g = Conv (m, gate) s = Sigmoid (g) t = Mul (r, s) "
        "y = Conv (t, second)",
        32,
    ),
    "flatten": (
        "r = Relu (a) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r) f = Flatten (p) "
        "y = Gemm (f, dense)",
        32,
    ),
}


def _network(name: str, folder: Path, text: str | None = None) -> Case:
    body = text or _NETWORKS[name][0]
    rank = "[n, c]" if name == "flatten" else "[n, c, h, w]"
    used = {each: array for each, array in _WEIGHTS.items() if each in body or each == "first"}
    return case(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,12,12] x) => (float{rank} y) {{
            a = Conv <pads = [1, 1, 1, 1]> (x, first)
            {body}
        }}""",
        folder,
        initializers=used,
    )


def _factors(made: Case) -> dict[str, list[float]]:
    note = QuantizationNote.from_json(Model.load(made.path).ir.metadata_props.get(NOTE_KEY))
    assert note is not None
    return {name: each.tolist() for name, each in note.factors.items()}


@pytest.mark.parametrize("name", _NETWORKS)
def test_a_channel_with_a_far_reach_leaves_the_others_their_steps(name: str, tmp_path: Path) -> None:
    made = _network(name, tmp_path)
    assert made.sqnr > _NETWORKS[name][1]
    found = prove(Model.load(made.source), Model.load(made.path), list(made.feeds))
    assert found.is_complete, str(found)
    assert set(_factors(made)) >= {"a"}
    # Nothing was added for it.
    nodes = [node.op_type for node in onnx.load(made.path).graph.node]
    assert nodes.count("Mul") == (name == "gate")


@pytest.mark.parametrize(
    "text",
    [
        "r = Sigmoid (a) y = Conv (r, second)",
        "r = Relu (a) c = Concat <axis = 1> (r, r) y = Conv (c, both)",
        "r = Relu (a) t = Transpose <perm = [0, 2, 1, 3]> (r) y = Conv (t, across)",
    ],
)
def test_what_is_read_otherwise_keeps_its_channels(text: str, tmp_path: Path) -> None:
    made = _network("", tmp_path, text)
    assert not _factors(made)
    found = prove(Model.load(made.source), Model.load(made.path), list(made.feeds))
    assert found.is_complete, str(found)


def test_factors_that_a_file_does_not_have_are_no_proof(tmp_path: Path) -> None:
    made = _network("relu", tmp_path)
    source, feeds = Model.load(made.source), list(made.feeds)
    for change in (None, 2.0):
        file = Model.load(made.path)
        note = QuantizationNote.from_json(file.ir.metadata_props[NOTE_KEY])
        assert note is not None
        factors = {} if change is None else {name: each * change for name, each in note.factors.items()}
        file.ir.metadata_props[NOTE_KEY] = QuantizationNote(note.ranges, note.means, factors).to_json()
        assert prove(source, file, feeds).faults


def test_a_source_that_passes_no_factors_on_is_not_divided(tmp_path: Path) -> None:
    """The file has Relu where its source has Sigmoid: no factors make them the same."""
    made = _network("relu", tmp_path)
    proto = onnx.load(made.source)
    next(node for node in proto.graph.node if node.op_type == "Relu").op_type = "Sigmoid"
    onnx.save(proto, tmp_path / "other.onnx")
    found = prove(Model.load(tmp_path / "other.onnx"), Model.load(made.path), list(made.feeds))
    assert not found.is_complete


# ---- real networks


@pytest.mark.real
@pytest.mark.slow
def test_a_network_of_many_residual_blocks_keeps_its_answers(tmp_path: Path) -> None:
    """faceplugin's landmarks, the published 16 samples and 16 others: 26.5 dB without; NNCF has 30.9."""
    assert _sqnr("faceplugin/fr_landmark.onnx", tmp_path) > 30


@pytest.mark.real
@pytest.mark.slow
def test_outputs_of_a_few_numbers_get_room_beyond_the_samples(tmp_path: Path) -> None:
    """MTCNN's O-Net gives 16 numbers a picture: 29.6 dB with ranges of 16 samples; ONNX Runtime's MinMax has 31."""
    assert _sqnr("mtcnn/onet.onnx", tmp_path) > 31.5


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "least"),
    [
        ("yunet/face_detection_yunet_2023mar.onnx", 26.0),
        ("rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx", 25.0),
    ],
    ids=["YuNet", "PP-OCR cls"],
)
def test_channels_that_are_rarely_far_from_zero_are_not_spread(
    key: str, least: float, tmp_path: Path
) -> None:
    """Estimated from a channel's strength alone, the error is too small there: YuNet had 25.7 dB, PP-OCR cls 23.0."""
    assert _sqnr(key, tmp_path) > least


def test_channels_of_zeros_lose_nothing_and_others_a_twelfth_of_the_step() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (4000, 2)).astype(np.float32)
    values[:, 1] = 0
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    spread = Spread.of(TensorSummary(-1, 1, halves=halves, extremes=(values.min(0), values.max(0))), None)
    assert spread is not None
    dense, empty = spread.measure_rounding(np.ones(2, np.float32))
    assert empty == 0
    assert dense == pytest.approx((2 / 255) ** 2 / 12, rel=0.1)
    assert spread.measure_rounding(np.array([0.5, 1], np.float32))[0] == pytest.approx(
        (4 / 255) ** 2 / 12, rel=0.1
    )


def _sqnr(key: str, folder: Path) -> float:
    net, made = NETS[key], folder / "int8.onnx"
    net.write(folder / "calibration", "calibration", 16)
    tests = net.write(folder / "test", "test", 16)
    result = onnxport.quantize_model(net.path, "int8", output=made, calib=folder / "calibration", cache=False)
    assert result.report is not None
    verdicts = {each.question: each.verdict for each in result.report.judgements}
    assert verdicts["translation"] == "proven"
    return scoring.score(made, scoring.answers(net.path, tests), tests).sqnr
