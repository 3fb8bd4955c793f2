"""The ranges of a network are percentiles where these are clearly nearer to the float model on its samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxport.formats.model import Model
from onnxport.pipelines.runner.clock import Clock
from onnxport.quantize import int8
from onnxport.quantize.calibration.answers import part_of
from onnxport.quantize.contract import QuantizationInputs
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.range_choice import SAMPLES, Lead, compare_errors
from onnxport.quantize.survey import survey
from onnxport.samples.readers import find_samples
from tests.quantize import small

_CHANNELS, _SIZE, _SAMPLES = 8, 24, 10
_NOTE = "ranges are percentiles"


def _network(threshold: float) -> onnx.ModelProto:
    """Return three products; of what the second makes, the third sees what is above the threshold."""
    rng = np.random.default_rng(3)
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,{_CHANNELS},{_SIZE},{_SIZE}] x) => (float[1,4,{_SIZE},{_SIZE}] y) {{
            a = Conv (x, first)
            r = Relu (a)
            b = Conv (r, second, bias)
            s = Relu (b)
            y = Conv (s, third)
        }}"""
    )
    one = np.eye(_CHANNELS, dtype=np.float32)[:, :, None, None]
    weights = {
        "first": one + 0.01 * rng.normal(size=one.shape),
        "second": one + 0.01 * rng.normal(size=one.shape),
        "bias": np.full(_CHANNELS, -threshold),
        "third": rng.normal(size=(4, _CHANNELS, 1, 1)),
    }
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return proto


def _sample(number: int, rare: float) -> Any:
    """Return values around 0, with one place in 100 `rare` times as strong."""
    rng = np.random.default_rng(number)
    values = rng.normal(size=(1, _CHANNELS, _SIZE, _SIZE))
    strong = rng.random((1, 1, _SIZE, _SIZE)) < 0.01
    return np.where(strong, rare * np.abs(values), values).astype(np.float32)


def _quantize(
    proto: onnx.ModelProto, rare: float, folder: Path, samples: int = _SAMPLES
) -> tuple[float, tuple[str, ...]]:
    """Return the SQNR on samples that calibration did not see, and the notes."""
    onnx.save(proto, folder / "float.onnx")
    (folder / "samples").mkdir()
    (folder / "scratch").mkdir()
    for number in range(samples):
        np.savez(folder / "samples" / f"{number}.npz", x=_sample(number, rare))
    model = Model.load(folder / "float.onnx")
    params = QuantizeParams(precision="int8", calib=folder / "samples", cache=False)
    files = find_samples(folder / "samples", model.inputs, samples)
    done = int8.quantize(model, params, QuantizationInputs(files, (), folder / "scratch", Clock(None)))
    done.model.save(folder / "int8.onnx")
    others = tuple({"x": _sample(1000 + number, rare)} for number in range(8))
    return small.sqnr(folder / "float.onnx", folder / "int8.onnx", others), done.notes


def test_rare_values_that_carry_the_answer_keep_their_range(tmp_path: Path) -> None:
    reached, notes = _quantize(_network(threshold=6.0), 30.0, tmp_path)
    assert reached > 25
    assert any(note.startswith(_NOTE) for note in notes)


def test_the_float_model_answers_in_the_pass_of_calibration(tmp_path: Path) -> None:
    """Of a large output every few elements are kept, of integers and of other samples nothing."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,8,n,n] x) => (float[1,8,n,n] y, int64[1,1,n,n] best) {
            a = Conv (x, w)
            y = Softmax <axis = 1> (a)
            best = ArgMax <axis = 1> (y)
        }"""
    )
    weight = np.random.default_rng(1).normal(size=(8, 8, 1, 1)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, tmp_path / "float.onnx")
    (tmp_path / "samples").mkdir()
    sizes = (300, *range(8, 17))
    for number, size in enumerate(sizes):
        values = np.random.default_rng(number).normal(size=(1, 8, size, size)).astype(np.float32)
        np.savez(tmp_path / "samples" / f"{number}.npz", x=values)
    model = Model.load(tmp_path / "float.onnx")
    params = QuantizeParams(precision="int8", calib=tmp_path / "samples", cache=False)
    files = find_samples(tmp_path / "samples", model.inputs, len(sizes))
    setting = QuantizationInputs(files, (), tmp_path, Clock(None))
    done = survey(model, int8.plan_graph(model, params, setting), params, setting)
    (answers,) = done.answers.values()
    assert list(done.answers) == ["y"]
    assert sorted(answers.parts) == [0, 1, 2, 3, 5, 6, 7, 8]
    session = onnxruntime.InferenceSession(tmp_path / "float.onnx")
    for number, part in answers.parts.items():
        (right,) = session.run(["y"], {"x": files[number].load().feeds["x"]})
        assert part.size == (right.size if number else len(right.ravel()[::7]))
        np.testing.assert_allclose(part, part_of(right), rtol=1e-4, atol=1e-6)


def test_a_few_samples_decide_nothing(tmp_path: Path) -> None:
    reached, notes = _quantize(_network(threshold=6.0), 30.0, tmp_path, samples=SAMPLES - 1)
    assert reached < 15
    assert not any(note.startswith(_NOTE) for note in notes)


def test_the_default_ranges_stay_without_rare_values(tmp_path: Path) -> None:
    _, notes = _quantize(_network(threshold=0.0), 1.0, tmp_path)
    assert not any(note.startswith(_NOTE) for note in notes)


@pytest.mark.parametrize(
    ("ratios", "is_clear"),
    [
        ((1.0,) * 8, True),
        ((0.4,) * 8, False),  # below half a dB
        ((-1.0,) * 4, False),  # given up
        ((2.0,) * 4, False),  # of too few samples
        ((8.0, -1, -1, -1, 1, -1, 1, 0), False),  # mean 0.75, standard error 1.1: one sample alone
        ((3.0, 1, 2, 0, 1, 2, -1, 2), True),  # mean 1.25, standard error 0.45
    ],
)
def test_a_lead_is_clear_where_most_samples_show_it(ratios: tuple[float, ...], is_clear: bool) -> None:
    assert Lead(ratios).is_clear is is_clear


def test_errors_are_compared_by_output_in_decibels() -> None:
    wanted = {"a": np.zeros(4, np.float32), "b": np.zeros(2, np.float32)}
    one = {"a": np.full((2, 2), 0.1, np.float32), "b": np.full(2, 1.0, np.float32)}
    other = {"a": np.full((2, 2), 0.01, np.float32), "b": np.full(2, 1.0, np.float32)}
    # 20 dB of one output and none of the other.
    assert compare_errors(wanted, one, other) == pytest.approx(10.0, abs=1e-5)
    assert compare_errors(wanted, other, one) == pytest.approx(-10.0, abs=1e-5)


def test_an_output_that_is_not_finite_or_exact_counts_within_bounds() -> None:
    wanted = {"a": np.zeros(2, np.float32)}
    broken, exact = {"a": np.array([np.nan, 0], np.float32)}, {"a": np.zeros(2, np.float32)}
    some = {"a": np.ones(2, np.float32)}
    assert compare_errors(wanted, some, broken) == -20
    assert compare_errors(wanted, some, exact) == 20
    assert compare_errors(wanted, broken, broken) == 0
