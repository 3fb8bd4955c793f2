"""One way to write a shape, split at the last = since ONNX names carry : and / and even =."""

from __future__ import annotations

import pytest

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.input_shapes import Limit, apply_shapes, parse_shapes, size_limits

SPECS = [TensorSpec("x", "float32", ("N", 3, None)), TensorSpec("n", "int64", ())]


def test_names_with_equals_signs_colons_and_slashes_survive() -> None:
    assert parse_shapes(["a=b/c:0=1,?,3"]) == {"a=b/c:0": (1, None, 3)}


@pytest.mark.parametrize("text", ["x", "=1,2", "x=1,-1", "x=1,00", "x=a", "x=1,,2"])
def test_malformed_shapes_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shapes([text])


def test_a_name_given_twice_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_shapes(["x=1", "x=2"])


def test_given_sizes_replace_open_dimensions_only() -> None:
    assert apply_shapes(SPECS, {"x": (None, 3, 5)}) == {"x": ("N", 3, 5), "n": ()}


def test_inputs_without_a_shape_follow_the_names_of_those_that_have_one() -> None:
    specs = [TensorSpec(name, "int64", ("batch", "length")) for name in ("ids", "mask", "types")]
    assert apply_shapes(specs, {"ids": (None, 8)})["mask"] == ("batch", 8)
    # Two sizes for one name: the model means less by it than ONNX does.
    assert apply_shapes(specs, {"ids": (1, 8), "types": (1, 9)})["mask"] == (1, "length")
    unnamed = [TensorSpec("a", "float32", ("?",)), TensorSpec("b", "float32", ("?",))]
    assert apply_shapes(unnamed, {"a": (3,)})["b"] == ("?",)


@pytest.mark.parametrize("shape", [(1, 4, 5), (1, 3), (1, 3, 5, 7)])
def test_sizes_that_contradict_the_model_are_wrong_usage(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="contradicts"):
        apply_shapes(SPECS, {"x": shape})


def test_an_unknown_input_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no input 'y'; its inputs are 'x', 'n'"):
        apply_shapes(SPECS, {"y": (1,)})


def test_bounds_and_choices_leave_a_dimension_open() -> None:
    given = parse_shapes(["x=1..8,3,224|320"])
    assert given == {"x": ("1..8", 3, "224|320")}
    assert parse_shapes({"x": ("1 .. 8", 3, "224 | 320")}) == given
    assert apply_shapes(SPECS, given) == {"x": ("N", 3, None), "n": ()}
    assert size_limits(SPECS, given) == {"x": {0: Limit(1, 8), 2: Limit(224, 320, (224, 320))}, "n": {}}


@pytest.mark.parametrize("text", ["x=8..1", "x=0..3", "x=1..", "x=..3", "x=3|", "x=1..2|3"])
def test_malformed_limits_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shapes([text])


def test_limits_on_a_fixed_dimension_contradict_the_model() -> None:
    with pytest.raises(UsageError, match="contradicts"):
        apply_shapes(SPECS, {"x": (None, "1..8", None)})


def test_dimensions_of_one_name_have_one_limit() -> None:
    specs = [TensorSpec(name, "int64", ("batch", "length")) for name in ("ids", "mask")]
    assert size_limits(specs, {"ids": ("1..4", None)})["mask"] == {0: Limit(1, 4)}


def test_choices_of_one_input_belong_together() -> None:
    with pytest.raises(UsageError, match="different numbers of choices"):
        size_limits(SPECS, {"x": ("1|2", 3, "4|5|6")})


def test_a_mapping_may_hold_texts() -> None:
    assert parse_shapes({"x": "1..8, 3, ?"}) == parse_shapes(["x=1..8,3,?"])
    with pytest.raises(UsageError, match=r"'a' in the shape 'x=a' is not a dimension"):
        parse_shapes({"x": "a"})


def test_a_cache_may_be_empty() -> None:
    assert parse_shapes(["past=1,0,8"]) == {"past": (1, 0, 8)} == parse_shapes({"past": (1, 0, 8)})
    with pytest.raises(UsageError, match="bounds begin at 1"):
        parse_shapes(["past=1,0..8,8"])
