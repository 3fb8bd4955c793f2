"""Collects all faults of a pipeline.yaml, to report them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from onnxport.core.errors import BadPipelineError, OnnxportError
from onnxport.pipelines.config.document import Document, Part
from onnxport.reports.pipeline.option_keys import spell_as_keys


class Faults:
    """Collects the faults of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._found: dict[str, tuple[tuple[int, int], OnnxportError]] = {}

    def add(self, error: OnnxportError, *place: Part) -> None:
        """Add a fault at `place`, unless it is known already."""
        with_place = self._document.with_place(_spell_options_as_keys(error), place)
        self._found.setdefault(str(with_place), (self._document.order(place), with_place))

    @contextmanager
    def catching(self, *place: Part) -> Iterator[None]:
        """Add an error inside the block as a fault at `place`, and continue behind the block."""
        try:
            yield
        except OnnxportError as error:
            self.add(error, *place)

    def where(self, *place: Part) -> str:
        """Return FILE:LINE, KEY for messages."""
        return self._document.where(place)

    def is_in_main_file(self, *place: Part) -> bool:
        """Whether a place is in the file itself, not in an included one."""
        return self._document.is_in_main_file(place)

    def __len__(self) -> int:
        return len(self._found)

    def check(self) -> None:
        """Raise the fault, or BadPipelineError for several, in the order of their lines."""
        found = [error for _, error in sorted(self._found.values(), key=lambda each: each[0])]
        raise_all(str(self._document.path), found)


def raise_all(name: str, found: Sequence[OnnxportError]) -> None:
    """Raise the faults of the file `name`, if there are any."""
    if len(found) == 1:
        raise found[0]
    if found:
        raise BadPipelineError(f"{name} has {len(found)} faults:", found)


def _spell_options_as_keys(error: OnnxportError) -> OnnxportError:
    """Replace command line options in `error` by keys of the file."""
    error.what, error.why, error.fix = map(spell_as_keys, (error.what, error.why, error.fix))
    return error
