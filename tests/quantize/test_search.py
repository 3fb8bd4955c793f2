"""The budget search on real models: what it ends with keeps the budget, and needs everything that it restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import TensorProto, helper, numpy_helper

import onnxport
from fixtures import models
from onnxport.formats.model import Model
from onnxport.pipelines.runner.clock import Clock
from onnxport.quantize import int8
from onnxport.quantize.calibration import calibrate
from onnxport.quantize.calibration.observers import Histogram
from onnxport.quantize.candidate_score import Score, Scorer
from onnxport.quantize.float_graph import simplify_for_quantization
from onnxport.quantize.measurement import Measurements
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.placement import place
from onnxport.quantize.search import Level, MixedPrecisionSpace, restore_for_budgets
from onnxport.samples.readers import SampleFile, find_samples
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Figure
from tests.real.quantizing import NETWORKS

_NETWORK = NETWORKS["mobilenetv2/mobilenetv2.onnx"]


def space_of(model: Model, files: tuple[SampleFile, ...], folder: Path) -> MixedPrecisionSpace:
    """Everything of `model` that can be in 8 bits, with ranges of min and max over the samples."""
    params = QuantizeParams(precision="int8", calib=folder, method="minmax")
    graph = simplify_for_quantization(model, folder)
    placement = place(graph.model.graph, params)
    taps = {name: (Histogram(elements=0),) for name in placement.observed}
    seen = calibrate(graph.path, taps, files, watch=Clock(None))
    ranges = {name: (histogram.low, histogram.high) for name, (histogram,) in seen.items()}
    return MixedPrecisionSpace(placement, partial(int8.build_model, graph, Measurements(ranges)))


def saved(folder: Path, feeds: Callable[[int], dict[str, np.ndarray]], numbers: range) -> Path:
    folder.mkdir()
    for number in numbers:
        np.savez(folder / f"{number}.npz", **feeds(number))
    return folder


@pytest.fixture(scope="module")
def mobilenet(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Model, MixedPrecisionSpace, tuple[SampleFile, ...]]:
    """MobileNetV2, what can be restored of it, and photos that calibration did not see."""
    folder = tmp_path_factory.mktemp("search")
    model = Model.load(models.path(_NETWORK.key))
    seen = find_samples(saved(folder / "seen", _NETWORK.feeds, range(8)), model.inputs, 100)
    others = find_samples(saved(folder / "others", _NETWORK.feeds, range(10, 14)), model.inputs, 100)
    return model, space_of(model, seen, folder), others


@pytest.mark.real
def test_the_fewest_nodes_are_restored_that_keep_the_budget(
    mobilenet: tuple[Model, MixedPrecisionSpace, tuple[SampleFile, ...]],
) -> None:
    model, space, files = mobilenet
    with Scorer(model, files, ValidateParams(budget={"sqnr": 22})) as scorer:
        found = restore_for_budgets(space, scorer)
        assert found.meets
        assert found.before.sqnr["logits"] < 22 <= scorer.score(found.model).sqnr["logits"]
        assert 0 < len(found.restored) < len(space.units) / 4
        levels = {each.unit: each.level for each in found.restored}
        for unit in levels:
            fewer = {other: level for other, level in levels.items() if other != unit}
            assert not scorer.score(space.built(fewer)).meets, f"{unit} did not have to be restored"


@pytest.mark.real
def test_litert_keeps_the_budget_too(
    mobilenet: tuple[Model, MixedPrecisionSpace, tuple[SampleFile, ...]], tmp_path: Path
) -> None:
    """With the 11 nodes that suffice in ONNX Runtime's rounding (26.0 dB), LiteRT has 25.8 dB."""
    model, space, files = mobilenet
    with Scorer(model, files, ValidateParams(budget={"sqnr": 26})) as scorer:
        found = restore_for_budgets(space, scorer)
    saved_model = found.model.save(tmp_path / "q.onnx").path
    made = tmp_path / "q.tflite"
    shape = {"input": (1, 3, 224, 224)}
    onnxport.convert_model(saved_model, "tflite", output=made, shape=shape, validate=False)
    interpreter = Interpreter(str(made))
    interpreter.allocate_tensors()
    (given,), (taken,) = interpreter.get_input_details(), interpreter.get_output_details()
    signal = noise = 0.0
    session = onnxruntime.InferenceSession(models.path(_NETWORK.key))
    for file in files:
        feeds = dict(file.load().feeds)
        (expected,) = session.run(None, feeds)
        interpreter.set_tensor(given["index"], feeds["input"])
        interpreter.invoke()
        signal += np.square(expected, dtype=np.float64).sum()
        noise += np.square(expected - interpreter.get_tensor(taken["index"]), dtype=np.float64).sum()
    assert 10 * np.log10(signal / noise) >= 26


@pytest.mark.real
def test_a_budget_that_8_bits_keep_restores_nothing(
    mobilenet: tuple[Model, MixedPrecisionSpace, tuple[SampleFile, ...]],
) -> None:
    model, space, files = mobilenet
    with Scorer(model, files, ValidateParams(budget={"sqnr": 10})) as scorer:
        found = restore_for_budgets(space, scorer)
    assert (found.meets, found.restored, found.scored) == (True, (), 2)


@pytest.fixture
def outlying(tmp_path: Path) -> tuple[Model, MixedPrecisionSpace, tuple[SampleFile, ...]]:
    """A product whose weights are integers, of inputs with an outlier: 8 bits are too few for them, 16 are not."""
    rng = np.random.default_rng(5)
    weight = rng.integers(-127, 128, (32, 8)).astype(np.float32)
    weight[0], weight[1] = 0, 127  # the outlier reaches no result; a step of the weights' grid is 1
    second = np.eye(8, dtype=np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["middle"], "first"),
            helper.make_node("MatMul", ["middle", "v"], ["y"], "second"),
        ],
        "outlying",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(second, "v")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")

    def feeds(number: int) -> dict[str, np.ndarray]:
        x = np.random.default_rng(number).normal(size=(4, 32)).astype(np.float32)
        x[0, 0] = 300 if number == 0 else 1
        return {"x": x}

    loaded = Model.load(tmp_path / "model.onnx")
    seen = find_samples(saved(tmp_path / "seen", feeds, range(60)), loaded.inputs, 100)
    others = find_samples(saved(tmp_path / "others", feeds, range(60, 64)), loaded.inputs, 100)
    return loaded, space_of(loaded, seen, tmp_path), others


def test_16_bits_are_enough_where_activations_have_outliers(
    outlying: tuple[Model, MixedPrecisionSpace, tuple[SampleFile, ...]],
) -> None:
    model, space, files = outlying
    with Scorer(model, files, ValidateParams(budget={"sqnr": 33})) as scorer:
        found = restore_for_budgets(space, scorer)
        assert found.meets
        assert [(each.unit, each.level) for each in found.restored] == [("first", "16-bit")]
        (note,) = found.notes
        assert note.startswith("'first' is in 16 bits: with only this node in 8 bits the outputs have ")


def test_one_node_may_need_float_while_another_needs_16_bits(
    outlying: tuple[Model, MixedPrecisionSpace, tuple[SampleFile, ...]], tmp_path: Path
) -> None:
    """Weights of 1 beside one of 20,000 that meets a zero: all of them are 0 in 8 bits, whatever the activations have.

    So it was with a mel filter bank behind a Fourier transform: the bank in float and the transform in 16 bits.
    """
    model, _, files = outlying
    weight = np.concatenate([np.full((1, 8), 20000.0), np.random.default_rng(1).normal(size=(7, 8))])
    middle = model.graph.initializers["w"].const_value
    assert middle is not None
    first = middle.numpy().copy()
    first[:, 0] = 0
    for name, values in (("w", first), ("v", weight.astype(np.float32))):
        model.graph.initializers[name].const_value = onnx_ir.tensor(values, name=name)
    model.save(tmp_path / "both.onnx")
    both = Model.load(tmp_path / "both.onnx")
    seen = find_samples(tmp_path / "seen", both.inputs, 100)
    space = space_of(both, seen, tmp_path)
    with Scorer(both, files, ValidateParams(budget={"sqnr": 33})) as scorer:
        found = restore_for_budgets(space, scorer)
    assert found.meets
    levels = {"first": "16-bit", "second": "float"}
    assert {each.unit: each.level for each in found.restored} == levels
    options: dict[str, Any] = {"precision": "int8", "calib": tmp_path / "seen", "budget": {"sqnr": 33}}
    made = onnxport.convert_model(
        tmp_path / "both.onnx", "tflite", output=tmp_path / "both.tflite", **options
    )
    assert sorted(note.split(":")[0] for note in made.run.artifacts[0].notes if "is in" in note) == [
        "'first' is in 16 bits",
        "'second' is in float32",
    ]


def test_a_budget_that_cannot_be_kept_gives_the_best_that_was_reached(
    outlying: tuple[Model, MixedPrecisionSpace, tuple[SampleFile, ...]],
) -> None:
    model, space, files = outlying
    with Scorer(model, files, ValidateParams(budget={"sqnr": 150})) as scorer:
        found = restore_for_budgets(space, scorer)
        assert not found.meets
        assert scorer.score(found.model).sqnr["y"] >= found.before.sqnr["y"]


@pytest.mark.real
def test_a_measurement_leaves_out_what_stays_in_float(
    mobilenet: tuple[Model, MixedPrecisionSpace, tuple[SampleFile, ...]],
) -> None:
    """Units in the middle of MobileNetV2, alone in 8 bits: the same noise as in the whole model, from half of it."""
    model, space, files = mobilenet
    units = list(space.units)
    floats = space.built(dict.fromkeys(units, "float"))
    middle = len(units) // 2
    others: dict[str, Level] = {unit: "float" for unit in units if unit not in units[middle : middle + 2]}
    with Scorer(model, files, ValidateParams(budget={"sqnr": 22})) as scorer:
        # What is kept behind them is no longer what the candidate has there.
        part = scorer.float_part(floats, [units[middle - 4], units[middle + 8]], 3)
        whole = scorer.score(space.built(others), samples=3)
        rest = scorer.score(space.built(others), samples=3, behind=part)
        few = part.rest_of(space.built(others))
    assert rest.sqnr["logits"] == pytest.approx(whole.sqnr["logits"], abs=0.1)
    assert len(few.graph) < 0.7 * len(space.built(others).graph)
    assert "input" not in {value.name for value in few.graph.inputs}


class EveryUnitHelps:
    """A network of 8 units: 20 dB in 8 bits, 1 dB more for each restored, and `floats` where all are in float."""

    units = tuple("abcdefgh")
    floats = 100.0

    def built(self, restored: Mapping[str, Level]) -> Model:
        return cast(Model, restored)

    def float_part(self, *_: object) -> None:
        """Nothing is kept."""

    def score(self, model: Model, **_: object) -> Score:
        restored = cast("Mapping[str, Level]", model)
        sqnr = self.floats if list(restored.values()) == ["float"] * 8 else 20.0 + len(restored)
        met = sqnr >= 90
        figure = Figure(metric="sqnr", value=sqnr, unit="dB", better="higher", budget=90, met=met)
        return Score({"y": sqnr}, (("y", figure),))


def test_what_was_reached_has_the_harmful_half_restored() -> None:
    space = EveryUnitHelps()
    found = restore_for_budgets(space, cast(Scorer, space))
    assert not found.meets
    assert [each.unit for each in found.restored] == ["a", "b", "c", "d"]
    assert "at least half of the nodes in 8 bits: 'y': sqnr 24 dB" in found.notes[0]


def test_a_budget_that_the_float_model_misses_is_not_searched_for() -> None:
    """As a text detector's answers on noise, which are all near 0: float32's own rounding, 0.5 dB."""
    space = EveryUnitHelps()
    space.floats = 30
    found = restore_for_budgets(space, cast(Scorer, space))
    assert (found.meets, found.restored, found.scored) == (False, (), 2)
    assert "in float32, with other rounding, the model itself has 'y': sqnr 30 dB" in found.notes[0]


def test_any_part_of_a_plan_has_a_grid_for_what_an_operator_told_in_the_whole(tmp_path: Path) -> None:
    """What a HardSigmoid gives is between 0 and 1 in any plan; no sample was asked for that when all was planned."""
    random = np.random.default_rng(0)
    shapes = {"stem": (4, 3, 3, 3), "gate": (4, 4, 1, 1), "last": (2, 4, 1, 1)}
    weights = {
        name: numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["a"], "first"),
        helper.make_node("GlobalAveragePool", ["a"], ["pooled"], "pool"),
        helper.make_node("Conv", ["pooled", "gate"], ["b"], "second"),
        helper.make_node("HardSigmoid", ["b"], ["c"], "gates"),
        helper.make_node("Mul", ["a", "c"], ["d"], "gated"),
        helper.make_node("Conv", ["d", "last"], ["y"], "third"),
    ]
    graph = helper.make_graph(
        nodes,
        "squeeze and excite",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 6, 6])],
        list(weights.values()),
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "m.onnx",
    )
    model = Model.load(tmp_path / "m.onnx")

    def feeds(number: int) -> dict[str, np.ndarray]:
        return {"x": np.random.default_rng(number).standard_normal((1, 3, 8, 8)).astype(np.float32)}

    files = find_samples(saved(tmp_path / "samples", feeds, range(4)), model.inputs, 100)
    space = space_of(model, files, tmp_path)
    for level in ("float", "16-bit"):
        for kept in space.units:
            restored: dict[str, Level] = {unit: cast(Level, level) for unit in space.units if unit != kept}
            space.built(restored)
            space.built({kept: cast(Level, level)})
