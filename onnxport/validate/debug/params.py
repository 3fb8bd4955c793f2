"""The options of `debug`: those of validation and a few more."""

from __future__ import annotations

from pydantic import Field

from onnxport.core.memory import Size, bytes_of
from onnxport.validate.params import ValidateParams

_SEARCH = "2GB"  # unless the user says how much


class DebugParams(ValidateParams):
    """The search for the node at which a candidate begins to differ."""

    memory_limit: Size | None = Field(
        default=None,
        description="Memory that running the two models and the search may take, as 500MB or 2GB; with less it looks "
        "at fewer values at once. [default: 2GB for the search]",
        json_schema_extra={"metavar": "SIZE"},
    )
    layers: bool = Field(
        default=False, description="Show the figures of the intermediate values also where the two agree."
    )

    @property
    def searched_within(self) -> str:
        """The limit on the search, as the user wrote it or by default."""
        return self.memory_limit or _SEARCH

    @property
    def memory_bytes(self) -> int:
        return bytes_of(self.searched_within)
