"""Sizes for open dimensions."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from onnxport.core.errors import InputError, UsageError
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.formats.input_shapes import Limit, apply_shapes, parse_shapes, size_limits
from onnxport.formats.model import Model
from onnxport.samples.sizes import OpenSizes


def sizes(*inputs: tuple[str, tuple[Dim, ...]]) -> OpenSizes:
    specs = [TensorSpec(name, "float32", shape) for name, shape in inputs]
    return OpenSizes(specs, {spec.name: spec.shape for spec in specs})


def test_a_fixed_model_has_one_proposal_and_nothing_open() -> None:
    fixed = sizes(("x", (1, 3, 8, 8)), ("scalar", ()))
    assert list(fixed.proposals(1)) == [{"x": (1, 3, 8, 8), "scalar": ()}]
    assert not fixed.is_open
    assert not fixed.has_batch


def test_an_open_first_dimension_is_the_batch() -> None:
    open_ = sizes(("x", ("N", 3, 8, 8)))
    assert open_.has_batch
    assert [list(open_.proposals(batch)) for batch in (1, 3)] == [
        [{"x": (1, 3, 8, 8)}],
        [{"x": (3, 3, 8, 8)}],
    ]


def test_height_and_width_differ_in_the_first_proposals() -> None:
    for shape in ((None, 3, None, None), ("N", 3, "h", "w"), ("N", 3, "?", "?"), (-1, 3, -1, -1)):
        first, second, *_ = sizes(("x", shape)).proposals(1)
        assert (first, second) == ({"x": (1, 3, 96, 128)}, {"x": (1, 3, 64, 96)})


def test_channels_last_images_are_told_by_their_channels() -> None:
    first, *_ = sizes(("x", ("N", "h", "w", 3))).proposals(1)
    assert first == {"x": (1, 96, 128, 3)}


def test_one_symbol_has_one_size_wherever_it_stands() -> None:
    open_ = sizes(("ids", ("batch", "sequence")), ("mask", ("batch", "sequence")), ("state", (2, "batch", 8)))
    first, second, *_ = open_.proposals(3)
    assert first == {"ids": (3, 7), "mask": (3, 7), "state": (2, 3, 8)}
    assert second == {"ids": (3, 16), "mask": (3, 16), "state": (2, 3, 8)}


def test_different_open_lengths_differ_first_and_agree_later() -> None:
    proposals = list(sizes(("ids", (1, "source")), ("mask", (1, "target"))).proposals(1))
    assert proposals[0] == {"ids": (1, 7), "mask": (1, 16)}
    assert {"ids": (1, 7), "mask": (1, 7)} in proposals


def test_the_open_dimension_of_a_state_is_the_batch() -> None:
    first, *_ = sizes(("input", (None, None)), ("state", (2, None, 128)), ("sr", ())).proposals(3)
    assert first == {"input": (3, 7), "state": (2, 3, 128), "sr": ()}


def test_n_behind_a_fixed_axis_is_a_length_unless_a_state_has_it() -> None:
    assert not sizes(("boxes", (1, "N", 16)), ("mask", (1, "N"))).has_batch
    assert sizes(("x", (1, "N", 4)), ("h", (1, "N", 6))).has_batch
    assert sizes(("x", (1, "bs", 4))).has_batch


def test_the_users_sizes_are_kept() -> None:
    spec = TensorSpec("x", "float32", ("N", 3, "h", "w"))
    given = OpenSizes([spec], {"x": ("N", 3, 48, "w")})
    assert all(shapes["x"][2] == 48 for shapes in given.proposals(1))


def test_no_proposal_comes_twice() -> None:
    proposals = list(sizes(("x", ("N", 3, "h", "w")), ("ids", ("N", "T"))).proposals(1))
    assert len(proposals) == len({tuple(shapes.items()) for shapes in proposals})


def test_when_none_is_accepted_the_option_is_spelled_out() -> None:
    error = sizes(("fixed", (4,)), ("x", ("N", 80, "T"))).refused(
        InputError("no", why="bad Concat"), "13 sizes were tried in 2 s"
    )
    assert error.exit_code == 2
    assert "input 'x'" in str(error)
    assert "bad Concat" in str(error)
    assert "--shape x=SIZE,80,SIZE, or" in str(error)


def test_every_missing_size_is_asked_for_at_once() -> None:
    open_inputs = (("nodes", ("N", 2)), ("edges", ("E", 1)), ("weights", ("E",)), ("senders", ("S",)))
    error = sizes(*open_inputs).refused(None, "3 sizes were tried")
    assert "inputs 'nodes', 'edges', 'senders'" in str(error)
    assert "--shape nodes=SIZE,2 --shape edges=SIZE,1 --shape senders=SIZE, or" in str(error), (
        "E is named once"
    )


def test_a_size_that_no_runtime_can_hold_is_refused() -> None:
    with pytest.raises(UsageError, match=r"99999999999999999999 in the shape .* is too large") as refused:
        parse_shapes(["x=99999999999999999999,6"])
    assert str(2**31 - 1) in str(refused.value)
    assert parse_shapes([f"x={2**31 - 1}"]) == {"x": (2**31 - 1,)}


def test_odd_sizes_are_proposed_on_request() -> None:
    image = sizes(("x", ("N", 3, "h", "w")))
    assert next(image.proposals(3, odd=True)) == {"x": (3, 3, 101, 67)}
    pair = list(sizes(("ids", (1, "source")), ("mask", (1, "target"))).proposals(1, odd=True))
    assert pair == [{"ids": (1, 37), "mask": (1, 23)}, {"ids": (1, 37), "mask": (1, 37)}]


def test_a_fixed_model_has_no_odd_proposal_of_its_own() -> None:
    fixed = sizes(("x", (1, 3, 8, 8)))
    assert list(fixed.proposals(1, odd=True)) == list(fixed.proposals(1))


def test_proposals_keep_the_users_limits() -> None:
    spec = TensorSpec("x", "float32", ("N", 3, "h", "w"))
    limit = {"x": {0: Limit(1, 2), 2: Limit(100, 110), 3: Limit(5, 7, (5, 7))}}
    limited = OpenSizes([spec], {"x": spec.shape}, limit)
    found = {
        shape for odd in (False, True) for each in limited.proposals(3, odd=odd) for shape in each.values()
    }
    assert {(n, h, w) for n, _, h, w in found} == {(2, h, w) for h in (100, 101, 110) for w in (5, 7)}


def solved(text: str, **given: str) -> OpenSizes:
    """The open sizes of a model, solved for, with the user's shapes."""
    model = Model(ir.from_proto(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')))
    shapes = parse_shapes([f"{name}={dims}" for name, dims in given.items()])
    limits = size_limits(model.inputs, shapes)
    return OpenSizes(model.inputs, apply_shapes(model.inputs, shapes), limits, model)


THREE = """g (float[1, L] x) => (float[3] y) <int64[1] three = {3}> { y = Reshape (x, three) }"""


def test_a_size_that_the_graph_decides_is_not_open() -> None:
    assert not solved(THREE).is_open
    assert list(solved(THREE).proposals(1)) == [{"x": (1, 3)}]


def test_the_users_limits_hold_for_sizes_that_the_graph_decides() -> None:
    assert next(solved(THREE, x="1,2..8").proposals(1)) == {"x": (1, 3)}
    refused = solved(THREE, x="1,5..8")
    assert {"x": (1, 3)} not in list(refused.proposals(1))


SHARED = """g (float[1, C, H, W] image, float[1, C, H, W] state) => (float[1, 4, A, B] y)
    <float[4, 3, 1, 1] w, float[4, 2, 1, 1] v> { a = Conv (image, w) b = Conv (state, v) y = Add (a, b) }"""


def test_one_name_for_sizes_that_differ_is_no_contradiction() -> None:
    """Robust Video Matting calls the channels of its image and of its four states alike."""
    found = solved(SHARED)
    first = next(found.proposals(1))
    assert (first["image"][1], first["state"][1]) == (3, 2)
    assert not found.is_contradictory


def test_the_users_limits_hold_where_one_name_was_split() -> None:
    found = solved(SHARED, image="1,?,10..20,?", state="1,?,10..20,?")
    assert all(10 <= shapes["image"][2] <= 20 for shapes in found.proposals(1))


def test_odd_sizes_that_do_not_fit_are_no_contradiction() -> None:
    text = """g (float[1, 1, H, W] x) => (float[A, 64] y) <int64[2] rows = {-1, 1024}> { y = Reshape (x, rows) }"""
    found = solved(text)
    assert list(found.proposals(1))
    list(found.proposals(1, odd=True))
    assert not found.is_contradictory


def test_sizes_that_the_usual_ones_miss_are_solved_for() -> None:
    """162 features in a window of 13: no usual length."""
    text = """g (float[1, T, F] x) => (float[B, 2106] y) <float[162, 1] w, int64[2] rows = {-1, 2106}> {
        check = MatMul (x, w) y = Reshape (x, rows) }"""
    first = next(solved(text).proposals(1))
    assert first["x"][2] == 162
    assert first["x"][1] % 13 == 0


def test_constant_indices_tell_the_least_number_of_columns() -> None:
    """As a recommender reads the fields of its one wide input; what is appended hides the size from the product."""
    text = """g (int32[N, F] x) => (float[N, 1] y)
        <int32[2] field = {2000, 2930}, int32[2] other = {0, 5}, float[2, 1] w = {1, 2}, int64[1] one = {1}> {
        c = Cast <to = 1> (x) a = Gather <axis = 1> (c, field) b = Gather <axis = 1> (c, other)
        p = MatMul (a, w) q = MatMul (b, w) y = Add (p, q) }"""
    found = solved(text)
    assert [next(found.proposals(batch))["x"] for batch in (1, 3)] == [(1, 2931), (3, 2931)]


MASK = """g (int64[B, S] ids, int64[B, S] mask) => (float[B, S, 2] y)
    <float[3, 2] table = {1, 2, 3, 4, 5, 6}, int64[1] last = {-1}, int64[3] ones = {1, 1, 1},
     int64[3] minus = {-1, -1, -1}> {
        x = Gather (table, ids) m = Unsqueeze (mask, last)
        sizes = Shape (x) kept = Equal (sizes, minus) target = Where (kept, ones, sizes)
        wide = Expand (m, target) factor = Cast <to = 1> (wide) y = Mul (x, factor) }"""


def test_a_mask_that_is_expanded_to_the_tokens_leaves_their_number_free() -> None:
    """As PyTorch exports `mask.unsqueeze(-1).expand(x.size())` in sentence embeddings."""
    found = solved(MASK)
    assert next(found.proposals(1)) == {"ids": (1, 7), "mask": (1, 7)}


def test_a_size_that_is_expanded_to_an_unknown_target_is_one() -> None:
    text = "g (float[N] x, int64[2] target) => (float[A, B] y) { y = Expand (x, target) }"
    assert next(solved(text).proposals(1))["x"] == (1,)


def test_an_input_that_is_called_audio_gets_a_second_of_sound() -> None:
    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[1, L] audio) => (float[1, L] y) { y = Sin (audio) }'
    model = Model(ir.from_proto(onnx.parser.parse_model(text)))
    found = OpenSizes(model.inputs, {spec.name: spec.shape for spec in model.inputs}, None, model)
    assert next(found.proposals(1)) == {"audio": (1, 16000)}


def test_an_open_first_dimension_may_be_a_length_of_which_one_is_too_few() -> None:
    """Differences of neighbours: Reshape's 0 keeps their number, and -1 cannot be told of none."""
    text = """g (float[N] x) => (float[M] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {1000}, int64[1] last = {-1}, int64[2] to = {0, -1}>
        { a = Slice (x, one, end, zero) b = Slice (x, zero, last, zero) d = Sub (a, b) y = Reshape (d, to) }"""
    assert next(solved(text).proposals(1)) == {"x": (2,)}


def test_a_batch_that_may_be_a_length_is_tried_longer_only_in_the_end() -> None:
    open_ = sizes(("f0", ("length", 1)), ("phoneme", ("length", 45)))
    assert [each["f0"] for each in open_.proposals(1)] == [(1, 1)]
    assert [each["f0"] for each in open_.longer()] == [(2, 1), (3, 1)]
    assert not list(sizes(("x", (1, 3, "h", "w"))).longer())
