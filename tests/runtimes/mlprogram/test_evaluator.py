"""What holds for every operator: types, rounding, sizes known at run time only, and what is let go of."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxport.runtimes.mlprogram.kernels.registry import Failed
from tests.runtimes.mlprogram.programs import builder, write

X = np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4)


def test_halves_are_rounded_after_every_operator(tmp_path: Path) -> None:
    mb = builder()

    def build(x: Any) -> list[Any]:
        large = mb.mul(x=x, y=np.float16(512))
        return [large, mb.mul(x=large, y=np.float16(2**-9)), mb.add(x=x, y=np.float16(2048))]

    x = np.array([100.03, 200, 3], np.float16)
    large, back, added = write(tmp_path, {"x": x}, build).run()
    assert large.dtype == back.dtype == np.float16
    np.testing.assert_array_equal(large, np.array([x[0] * np.float16(512), np.inf, 1536], np.float16))
    np.testing.assert_array_equal(back, np.array([x[0], np.inf, 3], np.float16))
    np.testing.assert_array_equal(added, np.array([2148, 2248, 2052], np.float16))


def test_within_an_operator_halves_are_summed_in_float32(tmp_path: Path) -> None:
    x = np.full((1, 4096), 1, np.float16)
    mb = builder()
    (found,) = write(tmp_path, {"x": x}, lambda x: [mb.matmul(x=x, y=np.ones((4096, 1), np.float16))]).run()
    assert found.item() == 4096  # halves alone would stop at 2048


def test_integers_wrap_around(tmp_path: Path) -> None:
    mb = builder()
    highest = np.array([2**31 - 1, -(2**31), 65536], np.int32)

    def build(x: Any) -> list[Any]:
        return [mb.add(x=x, y=1), mb.mul(x=x, y=x), mb.abs(x=x), mb.reduce_sum(x=x), mb.reduce_prod(x=x)]

    added, squared, size, summed, product = write(tmp_path, {"x": highest}, build).run()
    assert added.tolist() == [-(2**31), -(2**31) + 1, 65537]
    assert squared.tolist() == [1, 0, 0]
    assert size.tolist() == [2**31 - 1, -(2**31), 65536]
    assert summed.item() == 65535
    assert product.item() == 0
    assert {each.dtype.name for each in (added, squared, size, summed, product)} == {"int32"}


@pytest.mark.parametrize("sizes", [(1, 5), (2, 3), (7, 1)])
def test_shapes_that_are_computed(sizes: tuple[int, int], tmp_path: Path) -> None:
    """shape -> gather -> arithmetic -> reshape, tile, fill and range over sizes known at run time only."""
    mb = builder()

    def build(x: Any) -> list[Any]:
        shape = mb.shape(x=x)
        rows = mb.gather(x=shape, indices=np.int32(0), axis=0)
        columns = mb.slice_by_index(x=shape, begin=[1], end=[2], squeeze_mask=[True])
        count = mb.expand_dims(x=mb.mul(x=rows, y=columns), axes=[0])
        flat = mb.reshape(x=x, shape=mb.concat(values=[count, np.array([-1], np.int32)], axis=0))
        counted = mb.range_1d(start=np.int32(0), end=rows, step=np.int32(1))
        sizes = mb.concat(values=[mb.expand_dims(x=columns, axes=[0]), np.array([2], np.int32)], axis=0)
        filled = mb.fill(shape=sizes, value=1.5)
        tiled = mb.tile(x=mb.expand_dims(x=counted, axes=[0]), reps=sizes)
        return [flat, counted, filled, tiled]

    x = np.random.default_rng(1).normal(size=(*sizes, 4)).astype(np.float32)
    written = write(tmp_path, {"x": np.zeros((1, 1, 4), np.float32)}, build, open_dims={"x": [0, 1]})
    found = written.evaluator().run({"x": x})
    flat, counted, filled, tiled = (found[name] for name in written.outputs)
    rows, columns = sizes
    np.testing.assert_array_equal(flat, x.reshape(rows * columns, 4))
    np.testing.assert_array_equal(counted, np.arange(rows))
    np.testing.assert_array_equal(filled, np.full((columns, 2), 1.5, np.float32))
    np.testing.assert_array_equal(tiled, np.tile(np.arange(rows), (columns, 2)))


def test_a_result_of_another_shape_than_declared_fails(tmp_path: Path) -> None:
    mb = builder()
    written = write(tmp_path, {"x": X}, lambda x: [mb.add(x=mb.abs(x=x), y=np.ones((3, 1), np.float32))])
    with pytest.raises(Failed, match=r"abs .* returns \(5, 3, 4\), the program declares \(2, 3, 4\)"):
        written.evaluator().run({"x": np.ones((5, 3, 4), np.float32)})


def test_an_operator_that_cannot_be_computed_is_named(tmp_path: Path) -> None:
    mb = builder()
    written = write(
        tmp_path,
        {"x": X, "y": X},
        lambda x, y: [mb.add(x=x, y=y, name="sum")],
        open_dims={"x": [0], "y": [0]},
    )
    with pytest.raises(Failed, match=r"^add 'sum': "):
        written.evaluator().run({"x": X, "y": np.ones((3, 3, 4), np.float32)})


def test_values_inside_can_be_kept(tmp_path: Path) -> None:
    mb = builder()

    def build(x: Any) -> list[Any]:
        return [mb.square(x=mb.add(x=mb.abs(x=x, name="inside"), y=1.0, name="further"))]

    written = write(tmp_path, {"x": X}, build)
    found = written.evaluator().run({"x": X}, keep=["inside"])
    assert found.keys() == {"inside", *written.outputs}
    np.testing.assert_array_equal(found["inside"], np.abs(X))


def test_constants_and_inputs_may_be_outputs(tmp_path: Path) -> None:
    mb = builder()
    constant = np.arange(3, dtype=np.float16)
    same, given = write(
        tmp_path, {"x": X}, lambda x: [mb.const(val=constant, name="c"), mb.identity(x=x)]
    ).run()
    np.testing.assert_array_equal(same, constant)
    np.testing.assert_array_equal(given, X)


def test_values_are_let_go_of_after_their_last_reader(tmp_path: Path) -> None:
    """A chain of forty tensors of 4 MB each, with a fork that is read at the end."""
    mb = builder()

    def build(x: Any) -> list[Any]:
        early = mb.square(x=x)
        value = early
        for _ in range(40):
            value = mb.tanh(x=value)
        return [mb.reduce_sum(x=mb.add(x=value, y=early))]

    x = np.zeros((1024, 1024), np.float32)
    evaluator = (written := write(tmp_path, {"x": x}, build)).evaluator()
    tracemalloc.start()
    evaluator.run(written.feeds)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * x.nbytes
