"""Records of which a run keeps many."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

_NAMES: dict[frozenset[str], set[str]] = {}


class LeanRecord(BaseModel):
    """A frozen record; records that were given the same fields share the set of these names.

    Pydantic keeps such a set for each object, which is half of the memory of a report.
    """

    def model_post_init(self, context: Any, /) -> None:
        given = self.__pydantic_fields_set__
        object.__setattr__(self, "__pydantic_fields_set__", _NAMES.setdefault(frozenset(given), given))
