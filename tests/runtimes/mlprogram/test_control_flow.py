"""Blocks, loops and states: what is visible where, what is let go of, and what lasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtimes.mlprogram.programs import builder, write

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


@pytest.mark.parametrize("sign", [1, -1])
def test_cond_runs_the_block_of_its_predicate(sign: int, tmp_path: Path) -> None:
    mb = builder()

    def build(x: Any) -> list[Any]:
        outside = mb.square(x=x)  # read in both blocks and by nothing else

        def then() -> list[Any]:
            return [mb.sqrt(x=outside), mb.add(x=outside, y=x)]

        def otherwise() -> list[Any]:
            return [x, mb.mul(x=outside, y=-1.0)]

        high = mb.greater(x=mb.reduce_sum(x=x), y=0.0)
        return list(mb.cond(pred=high, _true_fn=then, _false_fn=otherwise))

    x = sign * X
    first, second = write(tmp_path, {"x": x}, build).run()
    np.testing.assert_array_equal(first, np.abs(x) if sign > 0 else x)
    np.testing.assert_array_equal(second, x * x + x if sign > 0 else -(x * x))


def test_a_cond_with_one_result(tmp_path: Path) -> None:
    mb = builder()

    def build(x: Any, p: Any) -> list[Any]:
        return [mb.cond(pred=p, _true_fn=lambda: mb.abs(x=x), _false_fn=lambda: mb.sign(x=x))]

    for p in (True, False):
        (found,) = write(tmp_path, {"x": X, "p": np.array(p)}, build).run()
        np.testing.assert_array_equal(found, np.abs(X) if p else np.sign(X))


def test_a_loop_inside_a_loop_reads_what_is_outside_of_both(tmp_path: Path) -> None:
    """sum over i < n of sum over j < i of (x + j), n known at run time only."""
    mb = builder()

    def build(x: Any, n: Any) -> list[Any]:
        step = mb.add(x=x, y=0.0)

        def body(i: Any, total: Any) -> tuple[Any, Any]:
            def inner(j: Any, part: Any) -> tuple[Any, Any]:
                number = mb.cast(x=j, dtype="fp32")
                return mb.add(x=j, y=1), mb.add(x=part, y=mb.add(x=step, y=number))

            zeros = mb.sub(x=step, y=step)
            _, part = mb.while_loop(
                _cond=lambda j, part: mb.less(x=j, y=i), _body=inner, loop_vars=(np.int32(0), zeros)
            )
            return mb.add(x=i, y=1), mb.add(x=total, y=part)

        start = mb.mul(x=x, y=0.0)
        i, total = mb.while_loop(
            _cond=lambda i, total: mb.less(x=i, y=n), _body=body, loop_vars=(np.int32(0), start)
        )
        return [i, total, mb.add(x=total, y=step)]

    for n in (0, 1, 5):
        i, total, more = write(tmp_path, {"x": X, "n": np.array(n, np.int32)}, build).run()
        expected = sum((X + j for i in range(n) for j in range(i)), np.zeros_like(X))
        assert i == n
        np.testing.assert_array_equal(total, expected)
        np.testing.assert_array_equal(more, expected + X)


def test_a_loop_that_grows_what_it_carries(tmp_path: Path) -> None:
    mb = builder()

    def build(x: Any) -> list[Any]:
        def body(i: Any, rows: Any) -> tuple[Any, Any]:
            return mb.add(x=i, y=1), mb.concat(values=[rows, x], axis=0)

        return list(
            mb.while_loop(_cond=lambda i, rows: mb.less(x=i, y=3), _body=body, loop_vars=(np.int32(0), x))
        )

    _, rows = write(tmp_path, {"x": X}, build, open_dims={"x": [0]}).run()
    np.testing.assert_array_equal(rows, np.tile(X, (4, 1)))


def test_halves_are_rounded_in_every_turn_of_a_loop(tmp_path: Path) -> None:
    mb = builder()

    def build(x: Any) -> list[Any]:
        def body(i: Any, sum_: Any) -> tuple[Any, Any]:
            return mb.add(x=i, y=1), mb.add(x=sum_, y=np.float16(0.5))

        return list(
            mb.while_loop(_cond=lambda i, sum_: mb.less(x=i, y=9), _body=body, loop_vars=(np.int32(0), x))
        )

    _, found = write(tmp_path, {"x": np.array([1023, 2048], np.float16)}, build).run()
    assert found.dtype == np.float16
    # From 1024 on they count by ones, and 0.5 is lost each time: in float32 there would be 1027.5 and 2052.5.
    np.testing.assert_array_equal(found, np.array([1024, 2048], np.float16))


def test_a_state_lasts_from_one_run_to_the_next(tmp_path: Path) -> None:
    mb = builder()
    zeros = np.zeros((2, 3), np.float16)

    def build(x: Any, total: Any) -> list[Any]:
        summed = mb.add(x=mb.read_state(input=total), y=mb.cast(x=x, dtype="fp16"))
        kept = mb.coreml_update_state(state=total, value=summed)
        return [mb.cast(x=kept, dtype="fp32")]

    written = write(tmp_path, {"x": X}, build, opset="iOS18", states={"total": zeros})
    evaluator = written.evaluator()
    states: dict[str, Any] = {}
    for turn in (1, 2, 3):
        (found,) = evaluator.run(written.feeds, states).values()
        np.testing.assert_array_equal(found, turn * X)
    assert states["total"].dtype == np.float16
    other: dict[str, Any] = {"total": np.ones((2, 3), np.float32)}  # which it holds as halves all the same
    (found,) = evaluator.run(written.feeds, other).values()
    np.testing.assert_array_equal(found, X + 1)
    assert other["total"].dtype == np.float16
    (found,) = evaluator.run(written.feeds).values()  # a state of its own, all zeros
    np.testing.assert_array_equal(found, X)


def test_a_state_that_is_written_and_not_read(tmp_path: Path) -> None:
    mb = builder()

    def build(x: Any, seen: Any) -> list[Any]:
        mb.coreml_update_state(state=seen, value=mb.cast(x=x, dtype="fp16"))
        return [mb.abs(x=x)]

    written = write(tmp_path, {"x": X}, build, opset="iOS18", states={"seen": np.zeros((2, 3), np.float16)})
    states: dict[str, Any] = {}
    (found,) = written.evaluator().run(written.feeds, states).values()
    np.testing.assert_array_equal(found, np.abs(X))
    np.testing.assert_array_equal(states["seen"], X)
