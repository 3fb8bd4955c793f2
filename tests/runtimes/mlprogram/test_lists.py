"""Lists, chance and labels: operators whose results are no tensors, or no two the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxport.runtimes.mlprogram.kernels.registry import Undefined
from tests.runtimes.mlprogram.programs import Written, builder, write

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def listed(tmp_path: Path, length: int, grows: bool, use: Any) -> Written:
    """A program that writes the rows 0 and 2 to their places in a list, and what `use` does with it."""

    def build(rows: Any) -> list[Any]:
        mb = builder()
        made = mb.make_list(init_length=length, dynamic_length=grows, elem_shape=(2,), dtype="fp32")
        for place in (0, 2):
            row = mb.gather(x=rows, indices=np.int32(place), axis=0)
            made = mb.list_write(ls=made, index=np.int32(place), value=row)
        return list(use(mb, made))

    return write(tmp_path, {"rows": ROWS}, build)


def test_a_list_grows_to_what_is_written(tmp_path: Path) -> None:
    def use(mb: Any, made: Any) -> list[Any]:
        both = mb.list_gather(ls=made, indices=np.array([2, 0], np.int32))
        return [mb.list_read(ls=made, index=np.int32(2)), both, mb.list_length(ls=made)]

    read, both, length = listed(tmp_path, 1, True, use).run()
    np.testing.assert_array_equal(read, ROWS[2])
    np.testing.assert_array_equal(both, ROWS[[2, 0]])
    assert length == 3


def test_scattered_rows_replace_those_of_the_list_before(tmp_path: Path) -> None:
    def use(mb: Any, made: Any) -> list[Any]:
        other = mb.list_scatter(ls=made, indices=np.array([1, 0], np.int32), value=ROWS[:2] * 10)
        order = np.arange(3, dtype=np.int32)
        return [mb.list_gather(ls=other, indices=order), mb.list_read(ls=made, index=np.int32(0))]

    changed, before = listed(tmp_path, 3, False, use).run()
    np.testing.assert_array_equal(changed, [ROWS[1] * 10, ROWS[0] * 10, ROWS[2]])
    np.testing.assert_array_equal(before, ROWS[0])


@pytest.mark.parametrize(
    ("length", "grows", "index", "why"),
    [(3, False, 1, "was never written"), (3, True, 3, "of length 3"), (1, False, 0, "fixed length 1")],
)
def test_what_is_not_there_is_undefined(
    length: int, grows: bool, index: int, why: str, tmp_path: Path
) -> None:
    written = listed(tmp_path, length, grows, lambda mb, made: [mb.list_read(ls=made, index=np.int32(index))])
    with pytest.raises(Undefined, match=why):
        written.run()


SIZE = 20000
CHANCES: list[tuple[str, dict[str, Any], float, float]] = [
    # Operator, its parameters, mean and standard deviation of what it draws.
    ("random_uniform", {"low": -1.0, "high": 3.0}, 1, 4 / 12**0.5),
    ("random_normal", {"mean": 2.0, "stddev": 0.5}, 2, 0.5),
    ("random_bernoulli", {"prob": 0.3}, 0.3, 0.21**0.5),
    ("random_categorical", {"x": [[0.0, np.log(3)]], "size": SIZE}, 0.75, 0.1875**0.5),
    ("random_categorical", {"x": [[0.2, 0.8]], "mode": "probs", "size": SIZE}, 0.8, 0.4),
]


@pytest.mark.parametrize(("operator", "parameters", "mean", "deviation"), CHANCES)
def test_chance_has_its_distribution(
    operator: str, parameters: dict[str, Any], mean: float, deviation: float, tmp_path: Path
) -> None:
    shape = {} if "x" in parameters else {"shape": np.array([SIZE], np.int32)}
    given = {
        name: np.array(each, np.float32)
        if isinstance(each, list)
        else np.float32(each)
        if isinstance(each, float)
        else each
        for name, each in parameters.items()
    }

    def build(unused: Any) -> list[Any]:
        mb = builder()
        draws = [getattr(mb, operator)(**shape, **given, seed=seed) for seed in (3, 3, 4)]
        return [mb.add(x=each, y=unused) for each in draws]

    first, again, other = write(tmp_path, {"unused": np.zeros(1, np.float32)}, build).run()
    assert abs(first.mean() - mean) < 5 * deviation / SIZE**0.5
    assert abs(first.std() - deviation) < 0.02 * max(deviation, 1)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
