"""Reports share what is the same in all of them, and nothing that may differ."""

from __future__ import annotations

import tracemalloc
from typing import Any

from pydantic import BaseModel, ConfigDict

from onnxport.core.lean_records import LeanRecord


class Plain(BaseModel):
    model_config = ConfigDict(frozen=True)
    name: str
    first: float = 0.0
    second: float = 0.0
    third: float = 0.0
    fourth: float = 0.0
    fifth: float = 0.0


class Lean(LeanRecord, Plain):
    """The same."""


GIVEN = {"name": "a", "first": 1.0, "second": 2.0, "third": 3.0, "fourth": 4.0, "fifth": 5.0}


def size_of(kind: type[BaseModel]) -> float:
    kind.model_validate(GIVEN)
    tracemalloc.start()
    try:
        kept: list[Any] = [kind.model_validate(GIVEN) for _ in range(1000)]
        return tracemalloc.get_traced_memory()[0] / len(kept)
    finally:
        tracemalloc.stop()


def test_many_records_take_two_thirds_of_the_memory() -> None:
    assert size_of(Lean) < 0.67 * size_of(Plain)


def test_copies_know_their_own_fields() -> None:
    one, other = Lean(name="a"), Lean(name="b")
    changed = one.model_copy(update={"first": 2.0})
    assert changed.model_dump(exclude_unset=True) == {"name": "a", "first": 2.0}
    assert one.model_dump(exclude_unset=True) == {"name": "a"}
    assert other.model_fields_set == {"name"}
    assert Lean.model_validate_json(changed.model_dump_json()) == changed
