"""Where rounding decides, either decision is right, and nothing between or beside them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxport.formats.artifact import Artifact
from onnxport.validate.accumulator import Tally
from onnxport.validate.comparison import compare
from onnxport.validate.decision_graph import Window
from onnxport.validate.near_ties import OtherOutcome, SharesBetween, find_rivals
from onnxport.validate.report import Report
from onnxport.validate.softmax_decisions import Decision
from onnxport.validate.tolerance import Tolerance, measure_noise
from tests.validate.models import save, verdict

Array = np.ndarray[Any, np.dtype[Any]]

# Numbers p and q that are equal but for rounding: one product, summed forward and backward.
FORWARD = "p = MatMul (x, w) r = Gather <axis = 1> (x, backward) q = MatMul (r, reversed)"
# The same in another order.
HALVES = """x0, x1 = Split <axis = 1> (x, halves) p0 = MatMul (x0, top) p1 = MatMul (x1, bottom)
    p = Add (p0, p1) q = Identity (p)"""
# Each number beside its twin on a map.
TWINS = """p3 = Reshape (p, column) q3 = Reshape (q, column) u = Concat <axis = 2> (p3, q3)
    z = Reshape (u, image) s = Sigmoid (z)"""
PEAKS = """b = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (s)
    k = Equal (s, b) f = Cast <to = 1> (k) y = Mul (s, f)"""
# A quarter of the map is the sigmoid of what is 0 but for rounding, and so beside the limit.
ZEROS = """d = Sub (p, q) some, none = Split <axis = 1> (d, quarter) none2, rest = Split <axis = 1> (p, quarter)
    u = Concat <axis = 1> (some, rest) z = Reshape (u, image8) s = Sigmoid (z)"""
LIMIT = "k = Greater (s, limit) f = Cast <to = 1> (k) y = Mul (s, f)"
WHERE = "k = LessOrEqual (s, limit) y = Where (k, zero, s)"
# Rows of eight, of which the first has twins, and scores so large that one of them gets all.
SHARES = """p4, none, rest = Split <axis = 1> (p, four) q4, none2, rest2 = Split <axis = 1> (q, four)
    u = Concat <axis = 1> (p4, q4, rest) v = Reshape (u, rows) z = Mul (v, large) y = Softmax <axis = 1> (z)"""


def model(*parts: str) -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    weights = (0.2 * rng.standard_normal((64, 128))).astype(np.float32)
    proto = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 13]> g (float[1, 64] x) => (float y) {{ {" ".join(parts)} }}'
    )
    constants = {
        "w": weights,
        "reversed": np.ascontiguousarray(weights[::-1]),
        "top": weights[:32],
        "bottom": weights[32:],
        "backward": np.arange(63, -1, -1),
        "column": np.array([1, 128, 1]),
        "image": np.array([1, 1, 16, 16]),
        "image8": np.array([1, 1, 8, 16]),
        "halves": np.array([32, 32]),
        "quarter": np.array([32, 96]),
        "four": np.array([4, 4, 120]),
        "rows": np.array([16, 8]),
        "limit": np.float32(0.5),
        "zero": np.float32(0),
        "large": np.float32([[1e6], *[[1.0]] * 15]),
        "less": np.float32(0.99),
    }
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items() if name in used
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(proto, data_prop=True)


def judged(reference: onnx.ModelProto, candidate: onnx.ModelProto, folder: Path) -> Report:
    return verdict(save(reference, folder / "reference.onnx"), save(candidate, folder / "candidate.onnx"))


@pytest.mark.parametrize(
    "decision",
    [(TWINS, PEAKS), (ZEROS, LIMIT), (ZEROS, WHERE), (SHARES,)],
    ids=["peaks", "limit", "where", "shares"],
)
def test_either_outcome_is_right_where_rounding_decides(decision: tuple[str, ...], tmp_path: Path) -> None:
    report = judged(model(FORWARD, *decision), model(HALVES, *decision), tmp_path)
    assert report.verdict == "proven", report.reason
    assert "a tie within rounding decides otherwise" in report.reason


SHORT = PEAKS.replace("[3, 3], pads = [1, 1, 1, 1]", "[1, 3], pads = [0, 1, 0, 1]")
LESSER = PEAKS.replace("Mul (s, f)", "Mul (t, f)").replace("b =", "t = Mul (s, less) b =")
OTHER_SIDE = WHERE.replace("zero, s", "limit, s")
OTHER_TWIN = SHARES.replace("q4, rest)", "q5, rest)").replace("u =", "q5 = Neg (q4) u =")
OTHER_ROWS = SHARES.replace("q4, rest)", "q4, low)").replace("u =", "low = Neg (rest) u =")


@pytest.mark.parametrize(
    ("decision", "fault"),
    [
        ((TWINS, PEAKS), (TWINS, LESSER)),
        ((TWINS, PEAKS), (TWINS, SHORT)),
        ((TWINS, PEAKS), (TWINS, PEAKS.replace("Equal (s, b)", "Less (s, b)"))),
        ((TWINS, PEAKS), (TWINS, "y = Mul (s, less)")),
        ((ZEROS, LIMIT), (ZEROS, LIMIT.replace("Greater", "Less"))),
        ((ZEROS, LIMIT), (ZEROS, LIMIT.replace("(s, limit)", "(s, less)"))),
        ((ZEROS, WHERE), (ZEROS, OTHER_SIDE)),
        ((SHARES,), (OTHER_TWIN,)),
        ((SHARES,), (OTHER_ROWS,)),
    ],
)
def test_what_is_no_outcome_of_a_decision_is_a_fault(
    decision: tuple[str, ...], fault: tuple[str, ...], tmp_path: Path
) -> None:
    assert judged(model(FORWARD, *decision), model(HALVES, *fault), tmp_path).verdict == "not equivalent"


@pytest.mark.parametrize(("sizes", "before"), [((3, 3), (1, 1)), ((2, 4), (1, 0)), ((5, 1), (2, 0))])
def test_rivals_are_the_largest_of_the_others_in_the_window(
    sizes: tuple[int, int], before: tuple[int, int]
) -> None:
    values = np.random.default_rng(1).standard_normal((2, 1, 7, 6))
    found = find_rivals(values, Window(sizes, before))
    for batch, row, column in itertools.product(range(2), range(7), range(6)):
        others = [
            values[batch, 0, r, c]
            for r in range(row - before[0], row - before[0] + sizes[0])
            for c in range(column - before[1], column - before[1] + sizes[1])
            if (r, c) != (row, column) and 0 <= r < 7 and 0 <= c < 6
        ]
        assert found[batch, 0, row, column] == max(others, default=-np.inf)


def test_shares_are_between_those_of_the_extreme_logits() -> None:
    logits = np.array([[1000.0, 999.0, 990.0], [1000.0, 0.0, -1000.0]])
    room, allowed = np.array([[1.0], [1.0]]), np.full((2, 3), 1e-6)
    between = SharesBetween.of(Decision("z", 1, flattens=False), (logits - room, logits + room), allowed)
    for signs in itertools.product((-1, 1), repeat=3):
        moved = logits + np.array(signs) * room
        shares = np.exp(moved - moved.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        assert (between.ratios(shares) <= 1).all()
    assert between.most[0, 1] == pytest.approx(1 / (1 + np.exp(-1) + np.exp(-10 - 1)), rel=1e-6)
    assert between.ratios(np.array([[1.0, 0, 0], [0.5, 0.5, 0]]))[1, :2].min() > 1
    assert between.spread(np.array([[True, False, False], [False] * 3])).sum() == 3


STEP = 0.4


def on_a_grid(shift: Array, folder: Path) -> Artifact:
    """Return a Softmax of logits that are moved before they are rounded to multiples of STEP."""
    rng = np.random.default_rng(5)
    codes = rng.integers(-127, 128, (64, 8)).astype(np.int8)
    proto = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 13]> g (float[1, 64] x) => (float[1, 8] y) {
        i = QuantizeLinear (x, fine, zero) j = DequantizeLinear (i, fine, zero)
        v = DequantizeLinear (w, fine, zero) p = MatMul (j, v) m = Add (p, shift)
        a = QuantizeLinear (m, step, zero) b = DequantizeLinear (a, step, zero) y = Softmax <axis = 1> (b) }"""
    )
    constants = {"w": codes, "fine": np.float32(0.02), "zero": np.int8(0), "step": np.float32(STEP)}
    for name, array in {**constants, "shift": (STEP * shift).astype(np.float32)}.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return save(onnx.shape_inference.infer_shapes(proto), folder / f"{shift[0]:.2f}.onnx")


def test_logits_may_round_to_a_neighbour(tmp_path: Path) -> None:
    """Two right integer runtimes differ by a step of the logits, which a Softmax shows as 0.2 of an answer."""
    reference = on_a_grid(np.zeros(8), tmp_path)
    within = np.array([0.6, -0.6, 0.3, -0.3, 0.6, -0.6, 0.6, -0.6])
    report = verdict(reference, on_a_grid(within, tmp_path))
    assert report.verdict != "not equivalent", report.reason
    beyond = np.array([2.1, -2.1, 0, 0, 0, 0, 0, 0])
    assert verdict(reference, on_a_grid(beyond, tmp_path)).verdict == "not equivalent"


def test_more_undecided_elements_than_a_tenth_prove_too_little() -> None:
    reference, other = np.ones((1, 100), np.float32), np.zeros((1, 100), np.float32)
    noise, tolerance = measure_noise(reference, []), Tolerance(1)
    alternative = OtherOutcome(other, np.zeros(()), np.ones((1, 100), bool))
    for count, verdict_ in ((10, "proven"), (11, "inconclusive")):
        candidate = np.where(np.arange(100) < count, other, reference)
        tally = Tally("y", "float32")
        found = compare("y", reference, candidate, noise, tolerance, [alternative])
        tally.add("set 1", reference, candidate, noise, found)
        report = tally.report(tolerance, "", accept=False)
        assert report.verdict == verdict_
        assert f"{count} " in report.rule
    assert compare("y", reference, candidate * np.float32(0.5), noise, tolerance, [alternative]).fault
