"""Runs that differ from the reference's by rounding alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest

import onnxport
from fixtures import graphs
from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import Artifact, TensorSpec
from onnxport.formats.model import Model
from onnxport.runtimes.base import MemoryFullError
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.expanded_norms import expand_norms
from onnxport.validate.noise_runs import (
    other_batch,
    perturb_inputs,
    perturb_terms,
    perturb_weights,
    perturb_zeros,
    widen_transforms,
)
from onnxport.validate.params import ValidateParams
from onnxport.validate.reference import Reference
from onnxport.validate.sessions import isolated
from tests.validate.models import save, verdict

Array = np.ndarray[Any, np.dtype[Any]]


def echoed(feeds: dict[str, Array]) -> dict[str, Array]:
    return perturb_inputs(dict, seed=1)(feeds, {})


def test_about_half_of_the_floats_move_to_a_neighbour() -> None:
    x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    moved = echoed({"x": x})["x"]
    assert 0.45 < (moved != x).mean() < 0.55
    np.testing.assert_array_less(np.abs(moved - x), np.spacing(np.abs(x)) * 1.01)
    assert (moved > x).any()
    assert (moved < x).any()


def test_zeros_integers_and_halves_stay() -> None:
    feeds = {
        "zero": np.zeros(100, np.float32),
        "ids": np.arange(100),
        "half": np.ones(100, np.float16),
        "double": np.ones(100),
    }
    moved = echoed(feeds)
    for name in ("zero", "ids", "half"):
        np.testing.assert_array_equal(moved[name], feeds[name])
    assert 0 < np.abs(moved["double"] - 1).max() < 2e-7


def test_only_matrices_of_weights_move() -> None:
    model = Model(onnx_ir.from_proto(graphs.mlp()))
    moved = perturb_weights(model)
    assert moved is not None
    for name, value in model.graph.initializers.items():
        before, after = value.const_value, moved.graph.initializers[name].const_value
        assert before is not None
        assert after is not None
        assert np.array_equal(before.numpy(), after.numpy()) == (len(before.shape) == 1)
        np.testing.assert_allclose(before.numpy(), after.numpy(), rtol=2e-7)


def run(text: str, tmp_path: Path) -> OrtRuntime:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    onnx.save(proto, tmp_path / "m.onnx")
    return OrtRuntime(tmp_path / "m.onnx")


def test_rows_in_other_company_give_every_row_anew(tmp_path: Path) -> None:
    """Counted by what the runtime was fed, since the values may well be the same."""
    runtime = run("g (float[N, 4] x) => (float[N, 4] y) { y = Exp (x) }", tmp_path)
    fed: list[int] = []

    def counted(feeds: Any) -> dict[str, Array]:
        fed.append(len(feeds["x"]))
        return runtime.run(feeds)

    probe = other_batch(counted, runtime.inputs)
    assert probe is not None
    for batch, expected in ((1, [2]), (3, [1, 1, 1])):
        feeds = {"x": np.random.default_rng(batch).standard_normal((batch, 4)).astype(np.float32)}
        answers = runtime.run(feeds)
        fed.clear()
        np.testing.assert_allclose(probe(feeds, answers)["y"], answers["y"], rtol=1e-6)
        assert fed == expected


def test_a_model_that_mixes_rows_has_no_such_noise(tmp_path: Path) -> None:
    runtime = run(
        "g (float[N, 4] x) => (float[N, 4] y) <int64 axis = {0}> { y = CumSum (x, axis) }", tmp_path
    )
    probe = other_batch(runtime.run, runtime.inputs)
    assert probe is not None
    feeds = {"x": np.ones((3, 4), np.float32)}
    answers = runtime.run(feeds)
    np.testing.assert_array_equal(probe(feeds, answers)["y"], answers["y"])


def test_a_model_whose_batch_is_fixed_has_no_such_probe() -> None:
    assert other_batch(dict, (TensorSpec("x", "float32", (1, 4)),)) is None


def test_open_first_axes_of_several_sizes_are_no_batch(tmp_path: Path) -> None:
    """As tf2onnx exports a step of an LSTM: time comes first in one input, the state's batch in another."""
    source = "g (float[T, 4] x, float[N, 4] h) => (float[T, 4] y) { y = Add (x, h) }"
    runtime = run(source, tmp_path)
    probe = other_batch(runtime.run, runtime.inputs)
    assert probe is not None
    feeds = {"x": np.ones((3, 4), np.float32), "h": np.ones((1, 4), np.float32)}
    answers = runtime.run(feeds)
    assert probe(feeds, answers) is answers


def test_leaves_of_trees_have_the_noise_of_their_sum(tmp_path: Path) -> None:
    """Terms of 0.5 that cancel leave a difference whose last digits are those of the terms."""
    leaves = [0.5, -0.49, 0.5, -0.51, 0.5, -0.5, 0.5, -0.4999]
    zeros, numbers = str([0] * len(leaves)), str(list(range(len(leaves))))
    names = "nodeids featureids truenodeids falsenodeids".split()
    ids = ", ".join(f"{name} = {zeros}" for name in (*(f"nodes_{each}" for each in names), "target_nodeids"))
    text = f"""<ir_version: 9, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    g (float[1, 1] x) => (float[1, 1] y) {{
        y = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, {ids}, target_ids = {zeros}, nodes_treeids = {numbers},
            target_treeids = {numbers}, nodes_values = {[0.0] * len(leaves)}, target_weights = {leaves},
            nodes_modes = {json.dumps(["LEAF"] * len(leaves))}> (x)
    }}"""
    model = Model(onnx_ir.from_proto(onnx.parser.parse_model(text)))
    moved = perturb_terms(model)
    assert moved is not None
    feeds = {"x": np.ones((1, 1), np.float32)}
    sums = [
        OrtRuntime(each.save(tmp_path / f"{number}.onnx").path).run(feeds)["y"]
        for number, each in enumerate((model, moved))
    ]
    assert 1e-8 < np.abs(sums[0] - sums[1]).item() < len(leaves) * max(map(abs, leaves)) * 2.0**-23


def test_sizes_that_the_model_refuses_count_for_nothing(tmp_path: Path) -> None:
    runtime = run(
        "g (float[N, 4] x) => (float[2, 2] y) <int64[2] s = {2, 2}> { y = Reshape (x, s) }", tmp_path
    )
    probe = other_batch(runtime.run, runtime.inputs)
    assert probe is not None
    feeds = {"x": np.ones((1, 4), np.float32)}
    answers = runtime.run(feeds)
    assert probe(feeds, answers) is answers


def test_an_output_that_loses_its_axis_for_one_row_counts_for_nothing(tmp_path: Path) -> None:
    runtime = run("g (float[N, 1] x) => (float[M] y) { y = Squeeze (x) }", tmp_path)
    probe = other_batch(runtime.run, runtime.inputs)
    assert probe is not None
    feeds = {"x": np.ones((3, 1), np.float32)}
    answers = runtime.run(feeds)
    assert answers["y"].shape == (3,)
    np.testing.assert_array_equal(probe(feeds, answers)["y"], answers["y"])


def test_labels_that_flip_in_other_company_count_as_unstable() -> None:
    scores = np.array([[0.5], [0.7], [0.9]], np.float32)

    def flipping(feeds: Any) -> dict[str, Array]:
        alone = len(feeds["x"]) == 1
        return {"score": feeds["x"], "label": np.array([1 if alone else 0] * len(feeds["x"]))}

    probe = other_batch(flipping, (TensorSpec("x", "float32", ("N", 1)),))
    assert probe is not None
    np.testing.assert_array_equal(probe({"x": scores}, flipping({"x": scores}))["label"], [1, 1, 1])


def test_a_batch_that_fills_the_memory_says_nothing_of_noise() -> None:
    def run(feeds: Feeds) -> dict[str, Array]:
        raise MemoryFullError("no room")

    x = np.ones((1, 3), np.float32)
    probe = other_batch(run, (TensorSpec("x", "float32", ("N", 3)),))
    assert probe is not None
    np.testing.assert_array_equal(probe({"x": x}, {"y": x})["y"], x)


def test_zeros_beside_other_numbers_move_by_the_rounding_of_the_largest() -> None:
    fed: list[dict[str, np.ndarray]] = []

    def run(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        fed.append(feeds)
        return {}

    sparse, zeros = np.array([0, 1000, 0, -2], np.float32), np.zeros(3, np.float32)
    perturb_zeros(run)({"x": sparse, "h": zeros, "n": np.array([0, 1])}, {})
    (feeds,) = fed
    np.testing.assert_array_equal(np.abs(feeds["x"]), np.float32([1000 * 2**-23, 1000, 1000 * 2**-23, 2]))
    assert feeds["h"] is zeros
    answers: dict[str, np.ndarray] = {}
    assert perturb_zeros(run)({"h": zeros}, answers) is answers
    assert len(fed) == 1


SPECTRUM = """g (float[1, 3200] x) => (float[1, T, 161, 2] y) <int64 step = {160}, int64 length = {320}>
    { y = STFT <onesided = 1> (x, step, , length) }"""


def test_a_transform_in_float64_shows_the_error_of_the_kernel(tmp_path: Path) -> None:
    """A length of 320 is no power of two: ONNX Runtime's float32 kernel loses two digits there."""
    runtime = run(SPECTRUM, tmp_path)
    x = np.random.default_rng(0).standard_normal((1, 3200)).astype(np.float32)
    frames = np.stack([x[0, start : start + 320] for start in range(0, 2881, 160)]).astype(np.float64)
    right = np.fft.rfft(frames, axis=1)
    source = Model.load(tmp_path / "m.onnx")
    widened = widen_transforms(source)
    assert widened is not None
    widened.save(tmp_path / "wide.onnx")
    errors = [
        np.abs(each["y"][0, ..., 0] + 1j * each["y"][0, ..., 1] - right).max() / np.abs(right).max()
        for each in (runtime.run({"x": x}), OrtRuntime(tmp_path / "wide.onnx").run({"x": x}))
    ]
    assert errors[0] > 5e-6
    assert errors[1] < 2e-7
    assert [str(value.type) for value in source.graph.node(0).outputs] == ["FLOAT"]


def test_a_right_spectrogram_is_proven_where_the_kernel_is_not_exact(tmp_path: Path) -> None:
    text = SPECTRUM.replace("float[1, T, 161, 2] y", "float[M, T, 161] logs").replace(
        "(x, step, , length) }",
        """(x, step, , length)
        power = ReduceSumSquare <axes = [-1], keepdims = 0> (y)
        tiny = Constant <value_float = 1e-9> ()
        floor = Max (power, tiny)
        logs = Log (floor) }""",
    )
    run(text.replace("float[1, 3200] x", "float[N, L] x"), tmp_path).close()
    assert onnxport.convert_model(tmp_path / "m.onnx", "tflite").report.verdict == "proven"


def test_constants_of_a_float16_model_are_known_to_half_a_step(tmp_path: Path) -> None:
    """ONNX Runtime computes float16 in float32: moved inputs alone may show nothing of what float16 rounds."""
    rng = np.random.default_rng(2)
    layers = [(0.4 * rng.standard_normal((16, 16))).astype(np.float16) for _ in range(8)]

    def network(weights: list[Array], dtype: int) -> onnx.ModelProto:
        steps = " ".join(f"a{i} = MatMul (h{i}, w{i}) h{i + 1} = Tanh (a{i})" for i in range(8))
        proto = onnx.parser.parse_model(
            f'<ir_version: 9, opset_import: ["" : 17]> g (float[1, 16] x) => (float[1, 16] y) '
            f"{{ c = Cast <to = {dtype}> (x) h0 = Sign (c) {steps} y = Cast <to = 1> (h8) }}"
        )
        proto.graph.initializer.extend(
            onnx.numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(weights)
        )
        return proto

    reference = save(network(layers, onnx.TensorProto.FLOAT16), tmp_path / "reference.onnx")

    def judged(share: float) -> str:
        moved = [each * (1 + share * rng.choice([-1, 1], each.shape)).astype(np.float32) for each in layers]
        candidate = save(network(moved, onnx.TensorProto.FLOAT), tmp_path / "candidate.onnx")
        return verdict(reference, candidate).verdict

    assert judged(2.0**-11) == "proven"
    assert judged(2.0**-5) == "not equivalent"


@pytest.mark.parametrize("opset", [13, 18])
def test_a_norm_over_space_shows_its_own_rounding(opset: int, tmp_path: Path) -> None:
    """On constant channels ONNX Runtime's kernel is off by 1e-2 deviations, which moved inputs do not show."""
    text = """g (float[1, 2, 16384] x) => (float[1, 2, 16384] y)
        <float[2, 1] b = {0.83, -1.57}, float[2] s = {1, 2}, float[2] t = {0.5, 0}>
        { c = Add (x, b) y = InstanceNormalization (c, s, t) }"""
    source = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    exact = expand_norms(Model(onnx_ir.from_proto(onnx.shape_inference.infer_shapes(source))))
    assert exact is not None
    assert verdict(save(source, tmp_path / "a.onnx"), exact.save(tmp_path / "b.onnx")).verdict == "proven"
    wrong = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}]> {text.replace("(c, s", "<epsilon = 0.001> (c, s")}'
    )
    assert (
        verdict(save(source, tmp_path / "a.onnx"), save(wrong, tmp_path / "c.onnx")).verdict
        == "not equivalent"
    )


def test_a_variance_of_sums_shows_how_they_round(tmp_path: Path) -> None:
    """ONNX Runtime adds 2048 numbers one after the other, and the difference of nearly equal sums keeps the error."""
    text = """g (float[1, 2048, 8] x) => (float[1, 2048, 8] y)
        <int64[1] a = {1}, float n = {0.00048828125}, float[1] e = {1e-4}, float[1] s = {1e-2}, float[1] m = {0.7}>
        { d = Mul (x, s) c = Add (d, m) t = ReduceSum (c, a) mean = Mul (t, n) q = Mul (c, c) u = ReduceSum (q, a)
          r = Mul (u, n) p = Mul (mean, mean) v = Sub (r, p) w = Abs (v) z = Add (w, e) o = Sqrt (z)
          k = Sub (c, mean) y = Div (k, o) }"""
    source = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    exact = widen_transforms(Model(onnx_ir.from_proto(onnx.shape_inference.infer_shapes(source))))
    assert exact is not None
    assert verdict(save(source, tmp_path / "a.onnx"), exact.save(tmp_path / "b.onnx")).verdict == "proven"
    wrong = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> {text.replace("1e-4", "2e-4")}'
    )
    found = verdict(save(source, tmp_path / "a.onnx"), save(wrong, tmp_path / "c.onnx"))
    assert found.verdict == "not equivalent"


@pytest.mark.parametrize(
    ("batch", "is_one_first"), [("N", True), ("2", False)], ids=["open batch", "fixed batch"]
)
def test_token_ids_in_other_batches_come_before_moved_weights(
    batch: str, is_one_first: bool, tmp_path: Path
) -> None:
    """Token ids cannot be moved; a copy of the weights costs a second model, other batches do not."""
    weights = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    source = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
        g (int64[{batch}, 4] ids) => (float[{batch}, 8] y)
        {{ rows = Gather (table, ids) half = Tanh (rows) y = ReduceSum <keepdims = 0> (half, axes) }}""")
    source.graph.initializer.extend(
        [onnx.numpy_helper.from_array(weights, "table"), onnx.numpy_helper.from_array(np.array([1]), "axes")]
    )
    artifact, params = save(source, tmp_path / "ids.onnx"), ValidateParams()
    with isolated(artifact, params, "reference") as runtime:
        reference = Reference(artifact, params, runtime)
        reference.prepare()
        assert not reference.doubts
        assert reference.measure_fully() is is_one_first
        reference.close()
    weights[:, 3] *= 1 + 1e-4
    source.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights, "table"))
    assert verdict(artifact, save(source, tmp_path / "wrong.onnx")).verdict == "not equivalent"


def cancelling(path: Path, bias: float = 0.04) -> Path:
    """A network of one number whose last sum cancels: it moves by no more than a hundredth of its terms."""
    random, hidden = np.random.default_rng(0), 64
    weights = {
        "w": random.standard_normal((1, hidden)) * 0.01,
        "b": random.standard_normal(hidden),
        "v": random.standard_normal((hidden, 1)),
    }
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    terms = np.maximum(0.3 * weights["w"].astype(np.float64) + weights["b"], 0) @ weights["v"]
    weights["c"] = (bias - terms[0]).astype(np.float32)
    helper = onnx.helper
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "v", "c"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 1]) for name in ("x", "y")]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_sum_that_cancels_is_as_noisy_as_its_terms_although_one_number_moves_it_little(
    tmp_path: Path,
) -> None:
    made = onnxport.convert_model(cancelling(tmp_path / "m.onnx"), "tflite")
    assert made.report.verdict == "proven"
    other = Artifact.open(cancelling(tmp_path / "other.onnx", 0.0401))
    assert verdict(other, Artifact.open(made.path)).verdict == "not equivalent"
