"""Options of the command line, spelled as keys of a pipeline.yaml: its reader cannot write options."""

from __future__ import annotations

import re
from functools import cache

from pydantic import BaseModel

from onnxport.converters.params import PARAMS
from onnxport.exporters.params import ExportParams
from onnxport.optimizers.params import OptimizeParams
from onnxport.quantize.params import PRECISIONS, QuantizeParams
from onnxport.validate.params import ValidateParams

# How messages spell them: "--precision int8", "--calib DIR", "--no-simplify".
_OPTION = re.compile(
    r"--(?P<no>no-)?(?P<name>[a-z][a-z0-9-]*)(?![\w-])(?: (?P<value>[A-Z]+(?:=[A-Z]+)?|fp16|int8)\b)?"
)
# An option of `onnxport run` itself, though a stage has a key of that name.
_RUN_OPTIONS = ("--no-cache",)


def spell_as_keys(message: str) -> str:
    """Return `message` with options spelled as keys; options of other programs stay."""
    return _OPTION.sub(_as_key, message)


def _as_key(found: re.Match[str]) -> str:
    if found[0] in _RUN_OPTIONS:
        return found[0]
    if found["name"] in PRECISIONS:  # a flag there, a value here
        return found[0].removeprefix("--")
    name = found["name"].replace("-", "_")
    if name not in _keys():
        return found[0]
    if found["no"]:
        return f"{name}: false"
    return f"{name}: {found['value']}" if found["value"] else name


@cache
def _keys() -> frozenset[str]:
    params: tuple[type[BaseModel], ...] = (
        ValidateParams,
        ExportParams,
        QuantizeParams,
        OptimizeParams,
        *PARAMS.values(),
    )
    return frozenset(name for each in params for name in each.model_fields) | {"validate", "latency"}
