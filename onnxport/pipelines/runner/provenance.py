"""The options in an artefact's note; independent of folders and of the number of processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from onnxport.converters.params import CoremlParams, TfliteParams
from onnxport.exporters.params import ExportParams
from onnxport.quantize.params import QuantizeParams
from onnxport.validate.params import ValidateParams

# Options that change no result. Of commands in separate environments only the versions count.
_NO_MATTER: Mapping[type[BaseModel], frozenset[str]] = {
    QuantizeParams: frozenset(("jobs", "memory_limit", "cache", "scheduler")),
    ValidateParams: frozenset(("timeout", "memory_limit", "report_tensors")),
    TfliteParams: frozenset(("onnx2tf",)),
    ExportParams: frozenset(("paddle2onnx",)),
}
# Options that a note has only where they are given: artefacts without them keep their bytes.
_ONLY_GIVEN: Mapping[type[BaseModel], frozenset[str]] = {
    TfliteParams: frozenset(("fit", "dynamic_quantization")),
    CoremlParams: frozenset(("dynamic_quantization",)),
}


def irrelevant_options(params: type[BaseModel]) -> frozenset[str]:
    """Return the options of a params model that change no result."""
    return _NO_MATTER.get(params, frozenset())


def options_of(steps: Iterable[tuple[str, BaseModel]]) -> dict[str, object]:
    """Return the options of stages for the note in an artefact, by name; a repeated stage has its number.

    Paths are left out, since files may move; the lock has the digests of their content.
    """
    names, all_params = zip(*steps, strict=True)
    found: dict[str, object] = {}
    for name, params in zip(number_names(names), all_params, strict=True):
        silent = {key for key in _ONLY_GIVEN.get(type(params), ()) if not getattr(params, key)}
        dumped = params.model_dump(mode="json", exclude={*irrelevant_options(type(params)), *silent})
        found[name] = {key: value for key, value in dumped.items() if not _is_path(getattr(params, key))}
    return found


def number_names(names: Sequence[str]) -> list[str]:
    """Return names of stages in their order, with "#2" behind the second of a name."""
    counts = [names[: number + 1].count(name) for number, name in enumerate(names)]
    return [name if count == 1 else f"{name}#{count}" for name, count in zip(names, counts, strict=True)]


def _is_path(value: object) -> bool:
    values = value.values() if isinstance(value, Mapping) else [value]
    return any(isinstance(each, Path) for each in values)
