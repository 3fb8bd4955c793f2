"""The options of `onnxport debug`: those of validation and a few more."""

from __future__ import annotations

from onnxport.core.memory import bytes_of
from onnxport.core.option_types import MemoryLimit, option
from onnxport.validate.params import ValidateParams

_SEARCH = "2GB"  # unless the user says how much


class DebugParams(ValidateParams):
    """The search for the node at which a candidate begins to differ."""

    memory_limit: MemoryLimit = option(
        "Maximum memory for running the two models and for the search, as 500MB or 2GB. With less, it looks at fewer "
        "values at once. [default: 2GB for the search]",
        default=None,
    )
    layers: bool = option("Also show intermediate values where the two models agree.", default=False)

    @property
    def searched_within(self) -> str:
        """The limit on the search, as the user wrote it or by default."""
        return self.memory_limit or _SEARCH

    @property
    def memory_bytes(self) -> int:
        return bytes_of(self.searched_within)
