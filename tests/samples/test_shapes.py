"""Shape inference at candidate sizes, held to the stored answers of ONNX's own tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxport.formats.model import Model
from onnxport.samples.domain import without_functions
from onnxport.samples.shapes.analysis import Sizes, infer
from onnxport.samples.shapes.fact import of_constant
from onnxport.samples.shapes.rules import RULES
from onnxport.samples.shapes.solver import SizeSolver
from tests.conformance.harness import Array, cases, data_set, load_case

PARTS = 8


def stored(folder: Path) -> tuple[Model, dict[str, Array], dict[str, Array]] | None:
    """A case with its first stored data set; None where it holds no tensors of numbers."""
    try:
        model = load_case(folder / "model.onnx")
        feeds, answers = data_set(model, folder / "test_data_set_0")
    except Exception:  # a case that is no model of tensors
        return None
    if any(array.dtype == object for array in (*feeds.values(), *answers.values())):
        return None
    return without_functions(model), feeds, answers


@pytest.mark.parametrize("part", range(PARTS))
def test_inferred_sizes_are_those_of_the_stored_answers(part: int) -> None:
    checked = 0
    for name, folder in list(cases().items())[part::PARTS]:
        case = stored(folder)
        if case is None:
            continue
        model, feeds, answers = case
        sizes = Sizes({})
        facts = infer(model.graph, RULES, {key: of_constant(array) for key, array in feeds.items()}, sizes)
        for value in model.graph.outputs:
            dims = facts[id(value)].dims if id(value) in facts else None
            read = [sizes.read(dim) for dim in dims or ()]
            if dims is not None and all(isinstance(dim, np.ndarray) for dim in read):
                found = tuple(int(dim[0]) for dim in read if isinstance(dim, np.ndarray))
                assert found == answers[value.name or ""].shape, name
                checked += 1
    assert checked > 200


def solver(text: str, **shapes: tuple[int | str, ...]) -> SizeSolver:
    header = '<ir_version: 9, opset_import: ["" : 17]>'
    model = Model(ir.from_proto(onnx.parser.parse_model(f"{header} {text}")))
    return SizeSolver(model, shapes)


def test_sizes_that_must_be_equal_are_one_symbol_and_channels_are_those_of_the_weights() -> None:
    text = """g (float[N, C, L] x, float[M, D, K] y) => (float[N, 4, P] z) <float[4, 2, 3] w> {
        a = Conv (x, w) b = Conv (y, w) z = Add (a, b) }"""
    found = solver(text, x=("N", "C", "L"), y=("M", "D", "K")).bound()
    assert found["C"] == found["D"] == 2
    assert {found.get("N"), found.get("M")} & {"N", "M"}


@pytest.mark.parametrize(("length", "fits"), [(15, False), (16, False), (26, True), (31, False), (41, True)])
def test_a_window_must_fit_and_a_reshape_must_divide(length: int, fits: bool) -> None:
    # (L - 16) // 5 + 1 windows of 6 channels: 18 is three windows.
    text = """g (float[1, 1, L] x) => (float[R, 6] y) <float[6, 1, 16] w, int64[2] s = {-1, 18}> {
        a = Conv <strides = [5]> (x, w) y = Reshape (a, s) }"""
    solution = solver(text, x=(1, 1, "L")).solve({"L": np.array([length])})
    assert bool(solution.holds.all()) == fits


def test_channels_are_those_of_the_weights_behind_dynamic_quantization() -> None:
    solution = solver(
        """g (float[N, C, L] x, uint8[8, 5, 3] w) => (int32[N, 8, M] y) {
            codes, scale, zero = DynamicQuantizeLinear (x)
            y = ConvInteger (codes, w, zero)
        }""",
        x=("N", "C", "L"),
        w=(8, 5, 3),
    ).solve({name: np.array([1, 7]) for name in ("N", "C", "L")})
    assert [int(each) for each in solution.sizes["C"]] in ([5], [5, 5])


def test_a_contradiction_names_the_nodes_that_make_it() -> None:
    text = """g (float[1, L] x) => (float[R] y) <int64[1] three = {3}, int64[1] four = {4}> {
        a = Reshape (x, three) b = Reshape (x, four) y = Add (a, b) }"""
    built = solver(text, x=(1, "L"))
    solution = built.solve({"L": np.array([3, 4, 12])})
    assert not solution.holds.any()
    assert {each.op for each in solution.contradiction} <= {"Reshape", "Add"}


def test_positions_end_where_their_table_ends() -> None:
    text = """g (int64[1, T] ids) => (float[T, 2] y)
        <float[512, 2] table, int64 zero = {0}, int64 one = {1}, int64[1] axis = {1}> {
        shape = Shape <start = 1> (ids) length = Squeeze (shape) places = Range (zero, length, one)
        y = Gather (table, places) }"""
    solution = solver(text, ids=(1, "T")).solve({"T": np.array([1, 512, 513])})
    assert solution.holds.tolist() == [True, True, False]
