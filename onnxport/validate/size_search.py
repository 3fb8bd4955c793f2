"""The search for sizes at which a model runs: which proposals to try, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from onnxport.core.errors import OnnxportError
from onnxport.runtimes.base import MemoryFullError, RunError, SlowRunError
from onnxport.runtimes.memory_limit import MemoryLimit, format_size, needed_bytes
from onnxport.samples.footprint import Estimate, Footprint
from onnxport.samples.sizes import OpenSizes, Shapes
from onnxport.validate.progress import Tell

SECONDS = 60.0  # for a model of up to _BYTES; larger ones get more in proportion
_BYTES = 50_000_000
_SHORTEST = 0.1
_SILENT = 2.0  # seconds without a report of progress


def patience(size: int) -> float:
    """Return the seconds that a search may take for a model of `size` bytes."""
    return SECONDS * max(1.0, size / _BYTES)


class Search:
    """The searches for sizes of one model.

    Only the time of refused proposals counts, not that of accepted ones.

    Args:
        sizes: the model's open dimensions.
        footprint: estimates the memory of a run.
        limit: on that memory.
        seconds: for all searches together.
        tell: see Tell.
    """

    def __init__(
        self,
        sizes: OpenSizes,
        footprint: Footprint,
        limit: MemoryLimit,
        seconds: float = SECONDS,
        tell: Tell | None = None,
    ) -> None:
        self._sizes, self._footprint, self._limit = sizes, footprint, limit
        self._seconds, self._tell = seconds, tell
        self._spent, self._tried = 0.0, 0
        self._accepted: list[Shapes] = []
        # Sizes that are too large, with the bytes they take, None where a run was ended.
        self._large: list[tuple[Shapes, int | None]] = []
        self._full: MemoryFullError | None = None
        self._refusal: RunError | None = None

    def proposals(self, proposals: Iterable[Shapes]) -> Iterator[Shapes]:
        """Yield the proposals as long as there is time; those that take a large part of the memory come last."""
        large = []
        for shapes in proposals:
            if shapes in self._accepted:
                yield shapes
            elif self._is_over or (estimate := self._fitting(shapes)) is None:
                continue
            elif self._limit.fills(estimate):
                large.append(shapes)
            else:
                yield shapes
        for shapes in large:
            if not self._is_over:
                yield shapes

    def accepts(self, shapes: Shapes, run: Callable[[float | None], None]) -> bool:
        """Call `run` and return whether the model accepts these sizes.

        Args:
            run: gets the seconds that one run of the model may take; None for no limit, where these sizes were accepted
                before or there are no others.
        """
        began = time.monotonic()
        is_known = shapes in self._accepted or not self._sizes.untold
        self._tried += 1
        try:
            run(None if is_known else max(self._seconds - self._spent, _SHORTEST))
        except MemoryFullError as error:
            self._full = error
            self._large.append((shapes, None))
        except RunError as error:
            self._refusal = error
        else:
            self._accepted.append(shapes)
            return True
        self._spend(began)
        return False

    def failed(self) -> OnnxportError:
        """Return the error for a model that runs at none of the proposals."""
        if self._refusal is None and self._large:
            return self._full or self._too_large()
        if self._refusal is None or self._sizes.is_open or self._sizes.is_contradictory:
            return self._sizes.refused(self._refusal, self._progress())
        return RunError(
            f"{self._refusal.what} (generated inputs)",
            why=self._refusal.why,
            fix="give inputs that it can run on: --inputs DIR",
        )

    @property
    def refusal(self) -> str:
        """The last refusal in ONNX Runtime's words; empty for none."""
        return self._refusal.why if self._refusal is not None else ""

    @property
    def _is_over(self) -> bool:
        return bool(self._sizes.untold) and self._spent >= self._seconds

    def _fitting(self, shapes: Shapes) -> Estimate | None:
        """Estimate a run at these sizes; None for more memory than allowed."""
        if any(_is_within(smaller, shapes) for smaller, _ in self._large):
            self._large.append((shapes, None))
            return None
        began = time.monotonic()
        estimate = self._footprint.at(shapes)
        if not self._limit.allows(estimate):
            self._large.append((shapes, needed_bytes(estimate)))
            self._spend(began)
            return None
        return estimate

    def _spend(self, began: float) -> None:
        self._spent += time.monotonic() - began
        if self._tell is not None and self._spent >= _SILENT:
            self._tell(
                "searching sizes, second", round(min(self._spent, self._seconds)), round(self._seconds)
            )

    def _progress(self) -> str:
        """Describe how far the search came."""
        sizes = "1 size was" if self._tried == 1 else f"{self._tried} sizes were"
        text = f"{sizes} tried in {self._spent:.0f} s"
        if isinstance(self._refusal, SlowRunError) or self._is_over:
            text += f", which is the time for it ({self._seconds:.0f} s)"
        if self._large:
            limit = format_size(self._limit.bytes or 0)
            text += f"; {len(self._large)} would take more memory than the limit of {limit}"
        return text

    def _too_large(self) -> MemoryFullError:
        shapes, least = min(
            ((shapes, bytes) for shapes, bytes in self._large if bytes is not None), key=lambda each: each[1]
        )
        inputs = self._footprint.at(shapes).inputs
        at = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        of_inputs = f", {format_size(inputs)} of them for the inputs" if 20 * inputs > least else ""
        others = f"the least of {len(self._large)} proposed sizes " if len(self._large) > 1 else "it "
        return self._limit.exceeded(
            f"running the reference on {at}", f"{others}takes at least {format_size(least)}{of_inputs}", least
        )


def _is_within(smaller: Shapes, larger: Shapes) -> bool:
    """Return whether no size of `larger` is below that of `smaller`."""
    return all(
        size <= other
        for name, shape in smaller.items()
        for size, other in zip(shape, larger[name], strict=True)
    )
