"""What operators demand reaches the inputs through arithmetic, and no further than it must."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.samples.domain import Domain, domains
from onnxport.samples.generator import generate
from onnxport.samples.input_domains import InputDomains

Shapes = dict[str, tuple[int, ...]]


def parsed(text: str, opset: int = 18) -> Model:
    header = f'<ir_version: 9, opset_import: ["" : {opset}]>'
    return Model(ir.from_proto(onnx.parser.parse_model(f"{header} {text}")))


def domains_of(text: str, shapes: Shapes, index: int = 0) -> dict[str, Domain]:
    model = parsed(text)
    return InputDomains(model, domains(model)).at(shapes, 0, index)


def drawn(text: str, shapes: Shapes, index: int = 0) -> dict[str, Array]:
    model = parsed(text)
    found = InputDomains(model, domains(model)).at(shapes, 0, index)
    specs = {spec.name: (spec, shapes[spec.name]) for spec in model.inputs}
    return generate(specs, found, kind="normal", seed=0, index=index)


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("y = Acos (x)", -1, 1),
        ("a = Add (x, two) y = Acos (a)", -3, -1),
        ("a = Mul (x, two) y = Acos (a)", -0.5, 0.5),
        ("a = Mul (x, less) y = Acos (a)", -0.5, 0.5),
        ("a = Div (x, two) y = Acos (a)", -2, 2),
        ("a = Sub (two, x) y = Acos (a)", 1, 3),
        ("a = Neg (x) b = Acosh (a) c = Mul (b, two) y = Neg (c)", -100, -1),
        ("a = Sqrt (x) b = Acosh (a) y = Neg (b)", 1, 10000),
    ],
)
def test_bounds_are_carried_back_through_arithmetic(body: str, low: float, high: float) -> None:
    text = f"g (float[4] x) => (float[4] y) <float two = {{2}}, float less = {{-2}}> {{ {body} }}"
    bounds = domains_of(text, {"x": (4,)})["x"].bounds
    assert bounds == pytest.approx((low, high))


@pytest.mark.parametrize("body", ["a = Clip (x, low, high) y = Acos (a)", "a = Sigmoid (x) y = Acos (a)"])
def test_what_an_operator_keeps_anyway_is_not_demanded(body: str) -> None:
    text = f"g (float[4] x) => (float[4] y) <float low = {{-1}}, float high = {{0.5}}> {{ {body} }}"
    assert domains_of(text, {"x": (4,)})["x"].bounds is None


def test_a_normalisation_demands_nothing_of_its_input() -> None:
    text = """g (float[N, 8] x) => (float[N, 8] y) <int64[1] axis = {1}, float eps = {1e-5}> {
        m = ReduceMean (x, axis) d = Sub (x, m) s = Mul (d, d) v = ReduceMean (s, axis) e = Add (v, eps)
        r = Sqrt (e) y = Div (d, r) }"""
    found = domains_of(text, {"x": (2, 8)})["x"]
    assert (found.bounds, found.positive) == (None, False)


def test_an_index_that_is_moved_first_stays_within_the_table() -> None:
    text = """g (int64[N] ids) => (float[N, 2] y) <float[6, 2] table, int64 two = {2}> {
        moved = Add (ids, two) y = Gather (table, moved) }"""
    found = domains_of(text, {"ids": (5,)})["ids"]
    assert (found.low, found.high) == (-2, 3)


def test_updates_of_one_element_never_meet() -> None:
    text = """g (float[5, 5] x, int64[2, 5] places, float[2, 5] new) => (float[5, 5] y) {
        y = ScatterElements <axis = 1> (x, places, new) }"""
    for index in range(4):
        places = drawn(text, {"x": (5, 5), "places": (2, 5), "new": (2, 5)}, index)["places"]
        assert all(sorted(row) == [0, 1, 2, 3, 4] for row in places.tolist())


def test_rows_of_indices_stay_within_each_axis_and_differ() -> None:
    text = """g (float[2, 3, 4] x, int64[5, 2] at, float[5, 4] new) => (float[2, 3, 4] y) {
        y = ScatterND (x, at, new) }"""
    rows = drawn(text, {"x": (2, 3, 4), "at": (5, 2), "new": (5, 4)})["at"].tolist()
    assert len({tuple(row) for row in rows}) == 5
    assert all(row[0] in range(2) and row[1] in range(3) for row in rows)


@pytest.mark.parametrize("index", range(5))
def test_settings_are_chosen_together(index: int) -> None:
    text = """g (float[6, 7] x, int64[2] starts, int64[2] ends, int64[2] axes, int64[2] steps) => (float[A, B] y) {
        y = Slice (x, starts, ends, axes, steps) }"""
    shapes = {"x": (6, 7), "starts": (2,), "ends": (2,), "axes": (2,), "steps": (2,)}
    fed = drawn(text, shapes, index)
    cut = [slice(None), slice(None)]
    assert sorted(fed["axes"].tolist()) == [0, 1]
    for start, end, axis, step in zip(
        *(fed[name] for name in ("starts", "ends", "axes", "steps")), strict=True
    ):
        cut[axis] = slice(int(start), int(end), int(step))
    assert np.zeros((6, 7))[tuple(cut)].size


def test_a_shape_that_is_joined_of_inputs_is_divided_among_them() -> None:
    text = """g (float[12] x, int64[1] rows, int64[1] columns) => (float[A, B] y) {
        shape = Concat <axis = 0> (rows, columns) y = Reshape (x, shape) }"""
    fed = drawn(text, {"x": (12,), "rows": (1,), "columns": (1,)})
    rows, columns = int(fed["rows"][0]), int(fed["columns"][0])
    assert rows * columns == 12 or -1 in (rows, columns)


def test_a_refused_index_narrows_the_input_behind_it() -> None:
    text = """g (int64[1] n) => (float[A] y) <float[4] table = {1, 2, 3, 4}> {
        z = NonZero (n) m = Mul (n, n) y = Gather (table, m) }"""
    model = parsed(text)
    found = InputDomains(model, domains(model))
    before = found.at({"n": (1,)}, 0, 0)["n"].high
    message = (
        "Gather '': indices element out of data bounds, idx=81 must be within the inclusive range [-4,3]"
    )
    assert found.narrow(message)
    assert found.at({"n": (1,)}, 0, 0)["n"].high < before
    assert not found.narrow("Conv '': something else went wrong")


def test_a_refused_constant_index_says_nothing_of_the_values_that_it_picks() -> None:
    text = """g (int64[N, F] x) => (int64[N, 1] y) <int64[1] place = {2930}> { y = Gather <axis = 1> (x, place) }"""
    found = InputDomains(parsed(text), domains(parsed(text)))
    assert not found.narrow(
        "Gather '': indices element out of data bounds, idx=2930 must be within the inclusive range [-7,6]"
    )


@pytest.mark.parametrize(("op", "low", "high"), [("GreaterOrEqual", 1, 5.5), ("LessOrEqual", 5.5, 10)])
def test_a_limit_splits_the_table_that_it_is_compared_with(op: str, low: float, high: float) -> None:
    text = f"""g (float limit) => (bool[10] y) <float[10] table = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}> {{
        y = {op} (table, limit) }}"""
    assert domains_of(text, {"limit": ()})["limit"].bounds == pytest.approx((low, high))


def test_a_refusal_leaves_nan_out_for_one_try_and_then_puts_it_back() -> None:
    model = parsed(
        """g (float[64] x) => (float[64] y) <float zero = {0}>
        { odd = IsNaN (x) y = Where (odd, zero, x) }"""
    )
    found, shapes = InputDomains(model, domains(model)), {"x": (64,)}
    specs = {"x": (model.inputs[0], (64,))}

    def odd() -> bool:
        feeds = generate(specs, found.at(shapes, 0, 0), kind="normal", seed=0, index=0)
        return bool(np.isnan(feeds["x"]).any())

    assert odd()
    assert found.takes_nan == {"x"}
    assert found.narrow("Non-zero status code returned while running Foo node")
    assert not odd()
    # A second refusal has another cause.
    assert not found.narrow("Non-zero status code returned while running Foo node")
    assert odd()


def test_a_refusal_of_a_model_without_nan_changes_nothing() -> None:
    model = parsed("g (float[4] x) => (float[4] y) { y = Exp (x) }")
    found = InputDomains(model, domains(model))
    found.at({"x": (4,)}, 0, 0)
    assert not found.narrow("Non-zero status code returned while running Foo node")


def test_demands_that_contradict_each_other_leave_something_to_draw() -> None:
    """An index and what is left of 20 cannot both be below 3."""
    text = """g (int64[4] i) => (float[4] y, float[4] z) <int64 k = {20}, float[3] table = {1, 2, 3}>
        { j = Sub (k, i) y = Gather <axis = 0> (table, i) z = Gather <axis = 0> (table, j) }"""
    assert drawn(text, {"i": (4,)})["i"].shape == (4,)
