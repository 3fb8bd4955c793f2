"""Rewritings of ai.onnx.ml's operators give the answers of ONNX Runtime's own kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir
import pytest
from onnx import helper, numpy_helper

from onnxport.formats.model import Model
from tests.optimizers.rewritten import Array, differences, model_of, refusal, rewritten, run

Random = np.random.Generator
MODES = "BRANCH_LEQ BRANCH_LT BRANCH_GTE BRANCH_GT BRANCH_EQ BRANCH_NEQ".split()
TRANSFORMS = "NONE SOFTMAX LOGISTIC SOFTMAX_ZERO PROBIT".split()
FEATURES = 4
SEEDS = 30  # for each op; hundreds were run when the rewritings were written


class Trees:
    """Random trees in the attributes of TreeEnsembleClassifier and -Regressor."""

    def __init__(self, random: Random, modes: list[str], *, tracks: bool) -> None:
        self.random, self.modes, self.tracks = random, modes, tracks
        self.nodes: dict[str, list[Any]] = {
            f"nodes_{name}": []
            for name in (
                "treeids nodeids featureids values modes truenodeids falsenodeids missing_value_tracks_true"
            ).split()
        }
        self.leaves: list[tuple[int, int]] = []

    def grow(self, tree: int, depth: int) -> int:
        """Add a subtree; return the number of its first node."""
        ids = self.nodes["nodes_nodeids"]
        number = sum(each == tree for each in self.nodes["nodes_treeids"])
        is_leaf = depth == 0 or self.random.random() < 0.2
        row = len(ids)
        for name, value in {
            "treeids": tree,
            "nodeids": number,
            "featureids": int(self.random.integers(FEATURES)),
            "values": float(np.float32(self.random.integers(-3, 4) / 2)),
            "modes": "LEAF" if is_leaf else str(self.random.choice(self.modes)),
            "truenodeids": 0,
            "falsenodeids": 0,
            "missing_value_tracks_true": int(self.tracks and self.random.integers(2)),
        }.items():
            self.nodes[f"nodes_{name}"].append(value)
        if is_leaf:
            self.leaves.append((tree, number))
        else:
            self.nodes["nodes_truenodeids"][row] = self.grow(tree, depth - 1)
            self.nodes["nodes_falsenodeids"][row] = self.grow(tree, depth - 1)
        return number

    def weights(self, name: str, targets: list[list[int]], *, positive: bool) -> dict[str, Any]:
        """Return a weight of each leaf for each target of its tree."""
        rows = [(tree, node, target) for tree, node in self.leaves for target in targets[tree]]
        numbers = self.random.random(len(rows)) if positive else self.random.standard_normal(len(rows))
        return {
            f"{name}_treeids": [tree for tree, _, _ in rows],
            f"{name}_nodeids": [node for _, node, _ in rows],
            f"{name}_ids": [target for _, _, target in rows],
            f"{name}_weights": [float(np.float32(number / len(targets))) for number in numbers],
        }


def features(random: Random, rows: int = 5) -> Array:
    """Return values that often equal thresholds, and a NaN."""
    x = (random.integers(-4, 5, (rows, FEATURES)) / 2).astype(np.float32)
    if random.integers(3) == 0:
        x[random.integers(rows), random.integers(FEATURES)] = np.nan
    return x


def forest(random: Random, count: int) -> Trees:
    some = [str(random.choice(MODES))] if random.integers(2) else MODES
    trees = Trees(random, some, tracks=bool(random.integers(2)))
    for tree in range(count):
        trees.grow(tree, int(random.integers(0, 4)))
    return trees


def targets_of(random: Random, trees: int, targets: int) -> list[list[int]]:
    """As exporters write them: all targets in every leaf, or one target for a tree, in turn."""
    if random.integers(2):
        return [list(range(targets))] * trees
    return [[tree % targets] for tree in range(trees)]


def regressor(random: Random) -> tuple[Any, Array]:
    targets, count = int(random.integers(1, 4)), int(random.integers(1, 6))
    trees = forest(random, count)
    attributes: dict[str, Any] = {
        **trees.nodes,
        **trees.weights("target", targets_of(random, count, targets), positive=bool(random.integers(2))),
        "n_targets": targets,
        "aggregate_function": str(random.choice(["SUM", "SUM", "AVERAGE", "MIN", "MAX"])),
        "post_transform": str(random.choice(TRANSFORMS[:4])),
    }
    if random.integers(2):
        attributes["base_values"] = random.standard_normal(targets).tolist()
    return attributes, features(random)


def classifier(random: Random) -> tuple[Any, Array]:
    classes, count = int(random.integers(2, 5)), int(random.integers(1, 7))
    trees = forest(random, count)
    positive = bool(random.integers(2))
    single = classes == 2 and random.integers(2) > 0
    targets = [[0]] * count if single else targets_of(random, count, classes)
    attributes: dict[str, Any] = {
        **trees.nodes,
        **trees.weights("class", targets, positive=positive),
        "classlabels_int64s": random.permutation(10)[:classes].tolist(),
        "post_transform": str(random.choice(TRANSFORMS[:4])),
    }
    if random.integers(2):
        attributes["base_values"] = random.standard_normal(1 if single else classes).tolist()
    return attributes, features(random)


FORESTS: dict[str, tuple[Callable[[Random], tuple[Any, Array]], dict[str, Any]]] = {
    "TreeEnsembleRegressor": (regressor, {"y": np.float32}),
    "TreeEnsembleClassifier": (classifier, {"label": np.int64, "scores": np.float32}),
}


@pytest.mark.parametrize("op", FORESTS)
def test_random_forests_match_onnx_runtime(op: str) -> None:
    make, outputs = FORESTS[op]
    faults, refused = [], 0
    for seed in range(SEEDS):
        attributes, x = make(np.random.default_rng(seed))
        node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
        model = model_of(node, {"x": x}, {}, outputs)
        result = rewritten(model)
        if refusal(result):
            refused += 1
            continue
        fault = differences(run(model, {"x": x}), run(result, {"x": x}))
        if fault:
            kept = {k: v for k, v in attributes.items() if not k.startswith(("nodes_", "class_", "target_"))}
            faults.append(f"{seed}: {fault} {kept}")
    assert not faults, "\n".join(faults)
    assert refused < SEEDS / 5


def test_trees_take_rows_of_an_open_width() -> None:
    """As an exporter writes them that declares no more than the rank."""
    attributes, x = regressor(np.random.default_rng(5))
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    model = model_of(node, {"x": x}, {}, {"y": np.float32})
    model.graph.inputs[0].shape = onnx_ir.Shape(["N", "F"])
    result = rewritten(model)
    assert not refusal(result)
    wider = np.concatenate([x, np.ones_like(x[:, :2])], axis=1)
    for feeds in ({"x": x}, {"x": wider}):
        assert not differences(run(model, feeds), run(result, feeds))


@pytest.mark.parametrize("op", FORESTS)
def test_trees_of_a_single_row_have_states_of_one_axis(op: str) -> None:
    """Lookups by one axis of indices are the only ones of a GPU."""
    make, outputs = FORESTS[op]
    for seed in range(SEEDS):
        attributes, x = make(np.random.default_rng(seed))
        node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
        model = model_of(node, {"x": x[:1]}, {}, outputs, is_open=False)
        result = rewritten(model)
        if refusal(result):
            continue
        for row in x:
            fault = differences(run(model, {"x": row[None]}), run(result, {"x": row[None]}))
            assert not fault, f"{seed}: {fault}"
        lookups = [each for each in result.graph.all_nodes() if each.op_type == "Gather"]
        deep = [each.inputs[1] for each in lookups if each.inputs[1].shape.rank() > 1]
        assert len({id(each) for each in deep}) <= 1, seed  # the leaves, by which the weights are found


X = np.array([[1, -2, 3, 0], [0, 0, 0, 0], [-1.5, 2, np.nan, 2.5]], np.float32)
FINITE = np.nan_to_num(X)
INTEGERS = np.array([[1, -2, 3, 0], [7, 7, 0, -1]], np.int64)
SHARES = np.array([[0.01], [0.3], [0.5], [0.7], [0.999]], np.float32)
LINEAR = {"coefficients": [0.5, -1.0, 2.0, 0.25], "intercepts": [0.125]}
TWO = {"coefficients": [0.5, -1.0, 2.0, 0.25, 1, 2, 3, 4], "intercepts": [0.125, -1.0]}
SVM = {
    "coefficients": [0.5, -1.0, 2.0],
    "support_vectors": np.linspace(-1, 1, 12).tolist(),
    "n_supports": 3,
    "rho": [0.25],
}

# Op, attributes, input, dtypes of the outputs.
CASES: list[tuple[str, dict[str, Any], Array, list[type]]] = [
    ("Scaler", {"offset": [1.0, 2, 3, 4], "scale": [0.5, 2, 1, 3]}, X, [np.float32]),
    ("Scaler", {"offset": [1.0], "scale": [3.0]}, INTEGERS, [np.float32]),
    ("Binarizer", {"threshold": 0.5}, FINITE, [np.float32]),
    ("Normalizer", {"norm": "MAX"}, FINITE, [np.float32]),
    ("Normalizer", {"norm": "MAX"}, -np.abs(FINITE) - 1, [np.float32]),
    ("Normalizer", {"norm": "L1"}, FINITE, [np.float32]),
    ("Normalizer", {"norm": "L2"}, FINITE, [np.float32]),
    ("Normalizer", {"norm": "L2"}, INTEGERS, [np.float32]),
    ("Imputer", {"imputed_value_floats": [1.0, 2, 3, 4], "replaced_value_float": np.nan}, X, [np.float32]),
    ("Imputer", {"imputed_value_floats": [9.0], "replaced_value_float": 0.0}, X, [np.float32]),
    ("Imputer", {"imputed_value_int64s": [9], "replaced_value_int64": 7}, INTEGERS, [np.int64]),
    ("OneHotEncoder", {"cats_int64s": [-1, 7, 3]}, INTEGERS, [np.float32]),
    ("OneHotEncoder", {"cats_int64s": [-1, 2, 3]}, FINITE, [np.float32]),
    ("LabelEncoder", {"keys_int64s": [7, 3, 0], "values_int64s": [1, 2, 3]}, INTEGERS, [np.int64]),
    (
        "LabelEncoder",
        {"keys_int64s": [7, 3], "values_floats": [1.5, 2.5], "default_float": 9.0},
        INTEGERS,
        [np.float32],
    ),
    ("LabelEncoder", {"keys_floats": [np.nan, 3, 0], "values_int64s": [1, 2, 3]}, X, [np.int64]),
    ("LabelEncoder", {"keys_floats": [2.5, 3], "values_floats": [1.5, 2.5]}, X, [np.float32]),
    ("FeatureVectorizer", {"inputdimensions": [4]}, INTEGERS, [np.float32]),
    ("FeatureVectorizer", {"inputdimensions": [4]}, INTEGERS[:, None], [np.float32]),
    ("LinearRegressor", LINEAR, FINITE, [np.float32]),
    ("LinearRegressor", {**TWO, "targets": 2}, FINITE, [np.float32]),
    ("LinearRegressor", {**TWO, "targets": 2, "post_transform": "SOFTMAX"}, FINITE, [np.float32]),
    ("LinearRegressor", {**LINEAR, "post_transform": "LOGISTIC"}, FINITE, [np.float32]),
    # Of too many coefficients ONNX Runtime reads the first ones.
    (
        "LinearClassifier",
        {**TWO, "coefficients": [*TWO["coefficients"], 9.0, -9.0, 8.0, 7.0], "classlabels_ints": [3, 5]},
        FINITE,
        [np.int64, np.float32],
    ),
    ("LinearRegressor", {"coefficients": [1.0], "post_transform": "PROBIT"}, SHARES, [np.float32]),
    *(
        (
            "LinearClassifier",
            {**TWO, "classlabels_ints": [3, 5], "post_transform": t},
            FINITE,
            [np.int64, np.float32],
        )
        for t in TRANSFORMS[:4]
    ),
    *(
        (
            "LinearClassifier",
            {**LINEAR, "classlabels_ints": [3, 5], "post_transform": t},
            FINITE,
            [np.int64, np.float32],
        )
        for t in ("NONE", "LOGISTIC")
    ),
    *(
        ("SVMRegressor", {**SVM, "kernel_type": k, "kernel_params": [0.5, 1.0, 2.0]}, FINITE, [np.float32])
        for k in ("LINEAR", "RBF", "POLY", "SIGMOID")
    ),
    (
        "SVMRegressor",
        {**SVM, "kernel_type": "RBF", "kernel_params": [0.5, 0, 3.0], "one_class": 1},
        FINITE,
        [np.float32],
    ),
    (
        "SVMRegressor",
        {"coefficients": [1.0, 2, 3, 4], "rho": [0.5], "kernel_params": [0.0, 0.0, 3.0]},
        FINITE,
        [np.float32],
    ),
]


@pytest.mark.parametrize(("op", "attributes", "x", "dtypes"), CASES)
def test_a_rewriting_matches_onnx_runtime(
    op: str, attributes: dict[str, Any], x: Array, dtypes: list[type]
) -> None:
    outputs = {f"y{i}": dtype for i, dtype in enumerate(dtypes)}
    node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
    model = model_of(node, {"x": x}, {}, outputs)
    result = rewritten(model)
    assert not refusal(result)
    assert not differences(run(model, {"x": x}), run(result, {"x": x}))


@pytest.mark.parametrize(
    ("op", "attributes", "x", "dtypes"),
    [case for case in CASES if case[0].startswith(("Feature", "Linear", "SVM"))],
)
def test_a_single_sample_may_be_a_vector(
    op: str, attributes: dict[str, Any], x: Array, dtypes: list[type]
) -> None:
    outputs = {f"y{i}": dtype for i, dtype in enumerate(dtypes)}
    node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
    model = model_of(node, {"x": x[-1]}, {}, outputs, is_open=False)
    result = rewritten(model)
    assert not refusal(result)
    assert not differences(run(model, {"x": x[-1]}), run(result, {"x": x[-1]}))


def test_features_are_picked_by_number() -> None:
    node = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain="ai.onnx.ml")
    feeds = {"x": X, "i": np.array([2, 0, 2])}
    model = model_of(node, feeds, {}, {"y": np.float32})
    assert not differences(run(model, feeds), run(rewritten(model), feeds))


def machine(random: Random, classes: int, *, probable: bool) -> dict[str, Any]:
    """Support vectors of several classes, as scikit-learn's SVC has them."""
    counts, pairs = random.integers(1, 4, classes).tolist(), classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "vectors_per_class": counts,
        "support_vectors": random.standard_normal(sum(counts) * FEATURES).tolist(),
        "coefficients": random.standard_normal((classes - 1) * sum(counts)).tolist(),
        "rho": random.standard_normal(pairs).tolist(),
        "kernel_type": str(random.choice(["LINEAR", "RBF", "POLY", "SIGMOID"])),
        "kernel_params": [0.5, 0.25, 2.0],
        "classlabels_ints": random.permutation(9)[:classes].tolist(),
    }
    if probable:
        attributes |= {
            "prob_a": (-random.random(pairs) * 3).tolist(),
            "prob_b": random.random(pairs).tolist(),
        }
    return attributes


@pytest.mark.parametrize("probable", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_support_vector_machines_match_onnx_runtime(classes: int, probable: bool) -> None:
    for seed in range(5):
        random = np.random.default_rng(seed)
        attributes = machine(random, classes, probable=probable)
        node = helper.make_node("SVMClassifier", ["x"], ["y", "z"], domain="ai.onnx.ml", **attributes)
        feeds = {"x": random.standard_normal((7, FEATURES)).astype(np.float32)}
        model = model_of(node, feeds, {}, {"y": np.int64, "z": np.float32})
        result = rewritten(model)
        assert not refusal(result)
        assert not differences(run(model, feeds), run(result, feeds), atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifiers_match_onnx_runtime(classes: int) -> None:
    random = np.random.default_rng(0)
    attributes = {
        "coefficients": random.standard_normal(classes * FEATURES).tolist(),
        "rho": [0.25],
        "kernel_type": "LINEAR",
        "kernel_params": [0.0, 0.0, 3.0],
        "classlabels_ints": [5, 3, 4][:classes],
    }
    node = helper.make_node("SVMClassifier", ["x"], ["y", "z"], domain="ai.onnx.ml", **attributes)
    feeds = {"x": random.standard_normal((9, FEATURES)).astype(np.float32)}
    model = model_of(node, feeds, {}, {"y": np.int64, "z": np.float32})
    result = rewritten(model)
    assert not refusal(result)
    assert not differences(run(model, feeds), run(result, feeds))


def texts_of(model: Model) -> Array:
    """Return the texts that the first output's numbers stand for."""
    return np.array(json.loads(model.graph.outputs[0].metadata_props["onnxport.texts"]), object)


TEXT_LABELS = {
    "TreeEnsembleClassifier": lambda random: classifier(random)[0],
    "SVMClassifier": lambda random: machine(random, int(random.integers(2, 5)), probable=True),
    "LinearClassifier": lambda random: {
        "coefficients": random.standard_normal(3 * FEATURES).tolist(),
        "intercepts": [0.5, 0.0, -0.5],
        "classlabels_ints": [0, 1, 2],
    },
}


@pytest.mark.parametrize("op", TEXT_LABELS)
@pytest.mark.parametrize("seed", range(6))
def test_string_labels_match_onnx_runtime(op: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    attributes = TEXT_LABELS[op](random)
    name = next(name for name in ("classlabels_int64s", "classlabels_ints") if name in attributes)
    attributes["classlabels_strings"] = [f"class {each}" for each in attributes.pop(name)]
    node = helper.make_node(op, ["x"], ["y", "z"], domain="ai.onnx.ml", **attributes)
    feeds = {"x": features(random, 9)}
    feeds["x"] = feeds["x"] if op.startswith("Tree") else np.nan_to_num(feeds["x"])
    model = model_of(node, feeds, {}, {"y": np.str_, "z": np.float32})
    result = rewritten(model)
    assert not refusal(result)
    numbers, scores = run(result, feeds)
    assert not differences(run(model, feeds), [texts_of(result)[numbers], scores], atol=1e-4)


def test_labels_encoded_as_strings_match_onnx_runtime() -> None:
    node = helper.make_node(
        "LabelEncoder",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        keys_int64s=[3, 1, 2],
        values_strings=["three", "one", "two"],
        default_string="other",
    )
    feeds = {"x": np.array([[1, 2], [3, 7]])}
    model = model_of(node, feeds, {}, {"y": np.str_})
    result = rewritten(model)
    assert not refusal(result)
    assert not differences(run(model, feeds), [texts_of(result)[run(result, feeds)[0]]])


@pytest.mark.parametrize("mode", MODES)
def test_float64_thresholds_decide_alike_for_all_float32_features(mode: str) -> None:
    random = np.random.default_rng(MODES.index(mode))
    # Beside them lie float32 numbers at both sides; some are float32 numbers themselves.
    thresholds = np.concatenate([random.standard_normal(40), [0.5, -1.25, 4.7, 1e-46, -1e-46, 3.4e38]])
    count = len(thresholds)
    trees = np.repeat(np.arange(count), 3)
    values = np.zeros(3 * count)
    values[::3] = thresholds
    attributes = {
        "nodes_treeids": trees.tolist(),
        "nodes_nodeids": [0, 1, 2] * count,
        "nodes_featureids": [0] * len(trees),
        "nodes_modes": [mode, "LEAF", "LEAF"] * count,
        "nodes_truenodeids": [1, 0, 0] * count,
        "nodes_falsenodeids": [2, 0, 0] * count,
        "nodes_values_as_tensor": numpy_helper.from_array(values),
        "target_treeids": np.repeat(np.arange(count), 2).tolist(),
        "target_nodeids": [1, 2] * count,
        "target_ids": np.repeat(np.arange(count), 2).tolist(),
        "target_weights_as_tensor": numpy_helper.from_array(np.tile([1.0, 2.0], count)),
        "n_targets": count,
    }
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    nearest = thresholds.astype(np.float32)
    sides = [np.nextafter(nearest, np.float32(to)) for to in (-np.inf, np.inf)]
    x = np.concatenate([nearest, *sides]).astype(np.float64)[:, None]
    x = x[np.isfinite(x)][:, None]
    model = model_of(node, {"x": x}, {}, {"y": np.float32})
    expected = run(model, {"x": x})
    assert len(np.unique(expected[0])) == 2
    made = rewritten(model)
    assert not refusal(made)
    assert not differences(expected, run(made, {"x": x}))
