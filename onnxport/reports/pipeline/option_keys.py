"""Options of the command line as the keys that they are in a pipeline.yaml, which is what its reader can write."""

from __future__ import annotations

import re
from functools import cache

from pydantic import BaseModel

from onnxport.converters.params import PARAMS
from onnxport.exporters.params import ExportParams
from onnxport.optimizers.params import OptimizeParams
from onnxport.quantize.params import PRECISIONS, QuantizeParams
from onnxport.validate.params import ValidateParams

# How the rooms spell them: "--precision int8", "--calib DIR", "--no-simplify".
_OPTION = re.compile(
    r"--(?P<no>no-)?(?P<name>[a-z][a-z0-9-]*)(?![\w-])(?: (?P<value>[A-Z]+(?:=[A-Z]+)?|fp16|int8)\b)?"
)
# What `onnxport run` itself takes, though a stage has an option of that name.
_OF_THE_RUN = ("--no-cache",)


def spell_as_keys(said: str) -> str:
    """`said` with the options that are keys named as such; those of other programs stay."""
    return _OPTION.sub(_as_key, said)


def _as_key(found: re.Match[str]) -> str:
    if found[0] in _OF_THE_RUN:
        return found[0]
    if found["name"] in PRECISIONS:  # a flag there, a value here
        return found[0].removeprefix("--")
    name = found["name"].replace("-", "_")
    if name not in _known():
        return found[0]
    if found["no"]:
        return f"{name}: false"
    return f"{name}: {found['value']}" if found["value"] else name


@cache
def _known() -> frozenset[str]:
    params: tuple[type[BaseModel], ...] = (
        ValidateParams,
        ExportParams,
        QuantizeParams,
        OptimizeParams,
        *PARAMS.values(),
    )
    return frozenset(name for each in params for name in each.model_fields) | {"validate", "latency"}
