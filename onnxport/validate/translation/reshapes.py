"""Compare the sizes of what only changes a shape, where the graphs do not tell them: on a set of inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxport.core.arrays import Feeds
from onnxport.formats.model import Model
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.findings import Finding
from onnxport.validate.translation.forms import Core

_Shapes = dict[str, tuple[int, ...]]


def check_views(
    views: Sequence[tuple[Core, Core]], source: Model, candidate: Model, feeds: Feeds
) -> Iterator[Finding]:
    """Yield every Reshape whose result has other sizes than that of the source.

    Args:
        views: pairs of the artefact's and the source's.
    """
    if not views:
        return
    names = [tuple(core.value.name or "" for core in pair) for pair in views]
    ours = _shapes(candidate, {first for first, _ in names}, feeds)
    theirs = _shapes(source, {second for _, second in names}, feeds)
    for (core, original), (first, second) in zip(views, names, strict=True):
        shape, wanted = ours.get(first), theirs.get(second)
        if shape is None or wanted is None:
            yield Finding(core.label, "its sizes are not known before it runs", "doubt")
        elif shape != wanted:
            yield Finding(
                core.label, f"its shape is {shape}, that of the source's {original.label} {wanted}", "fault"
            )


def _shapes(model: Model, names: set[str], feeds: Feeds) -> _Shapes:
    with OrtRuntime.of_model(model) as runtime:
        answers = runtime.run(feeds, taps=sorted(names & runtime.taps))
        return {name: array.shape for name, array in answers.items()}
