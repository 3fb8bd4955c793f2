"""Latency of artefacts beside their source on this machine, for limits on latency; measured once, then cached.

The reference is the source in ONNX Runtime for all targets, run in turns with the artefact in its own runtime
(quantize/latency.py). Figures are cached apart from the products, by all that they depend on, including the CPU: a
product of another machine is timed here, and a new limit rebuilds nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from pydantic import ValidationError

from onnxport.core.child_process import ChildBug
from onnxport.core.errors import OnnxportError, printable
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.environment import RUNS_ON, instruction_sets, processor, versions
from onnxport.pipelines.graph.cache_keys import describe_params
from onnxport.pipelines.runner.model_sources import load
from onnxport.pipelines.runner.speedup import TIMED, UNTIMED, latency_of
from onnxport.pipelines.runner.verdicts import open_judge, start_reference
from onnxport.reports.run_report import Worth
from onnxport.validate.params import ValidateParams

_FORM = 3  # 3: with the start of the artefact
# One input set is enough to time a model.
_ONE = {"samples": 1, "budget": {}, "metric": (), "report_tensors": None}


class Timings:
    """The cached figures in `folder`, which need not exist; None to cache nothing."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def of(self, source: Artifact, product: Artifact, validation: ValidateParams | None) -> Worth:
        """Return the milliseconds of the source and the product on inputs of `validation`, or why there are none."""
        if product.format not in TIMED:
            return Worth(why_not=UNTIMED)
        params = (validation or ValidateParams()).model_copy(update=_ONE)
        try:
            if self._folder is None:
                return _measure(source, product, params)
            place = self._folder / _name(source, product, params)
            with contextlib.suppress(OSError, ValidationError):  # not measured yet, or damaged
                return Worth.model_validate_json(place.read_bytes())
            found = _measure(source, product, params)
            _store(place, found)
            return found
        except (OnnxportError, ChildBug) as error:
            return Worth(why_not=printable(str(error).splitlines()[-1]))


def _name(source: Artifact, product: Artifact, params: ValidateParams) -> str:
    """Return the name of a measurement's file, from all that the figures depend on."""
    follows_from = {
        "form": _FORM,
        "source": source.digest(),
        "product": product.digest(),
        "inputs": describe_params(params),
        "cpu": [processor(), instruction_sets(), os.cpu_count()],
        "versions": versions((*RUNS_ON["onnx"], *RUNS_ON[product.format])),
    }
    digest = hashlib.sha256(json.dumps(follows_from, sort_keys=True).encode()).hexdigest()
    return f"{digest}.json"


def _measure(source: Artifact, product: Artifact, params: ValidateParams) -> Worth:
    from onnxport.quantize.latency import measure_latency

    with start_reference(source, params) as runtime:
        model, whole = load(source)
        with open_judge(whole, params, runtime, model, None) as judge:
            feeds = judge.feeds()
    return Worth(latency=latency_of(measure_latency(source.path, product.path, feeds)))


def _store(place: Path, found: Worth) -> None:
    """Cache a measurement; if the folder cannot be written, the next run measures again."""
    new = place.with_name(f"{place.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(found.model_dump_json(), encoding="utf-8")
        new.replace(place)
