"""How long artefacts take beside their source on this machine, for limits on latency: measured once, then kept.

The yardstick is one for all targets: the model that everything is proven against, in ONNX Runtime, in turns with the
artefact in its own runtime (quantize/latency.py). Figures are kept apart from the products, by all that they follow
from, the CPU among it: a product that was made elsewhere is timed here, and a new limit makes nothing anew.
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
from onnxport.pipelines.background_judge import JudgeAhead, started
from onnxport.pipelines.environment import RUNS_ON, instruction_sets, processor, versions
from onnxport.pipelines.graph.cache_keys import described
from onnxport.pipelines.model_sources import load
from onnxport.pipelines.speedup import TIMED, UNTIMED, latency_of
from onnxport.reports.run_report import Worth
from onnxport.validate.params import ValidateParams

_FORM = 2  # 2: timed by the engine of onnxport bench
# One set of inputs is enough to run a model on, and nothing is judged.
_ONE = {"samples": 1, "budget": {}, "metric": (), "report_tensors": None}


class Timings:
    """Figures in `folder`, which need not exist; None to measure anew and keep nothing."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def of(self, source: Artifact, product: Artifact, validation: ValidateParams | None) -> Worth:
        """Milliseconds of the source (before) and the product (after), or why there are none.

        Args:
            validation: says where inputs come from.
        """
        if product.format not in TIMED:
            return Worth(why_not=UNTIMED)
        params = (validation or ValidateParams()).model_copy(update=_ONE)
        try:
            place = self._place(source, product, params)
            found = _kept(place)
            if found is None:
                found = _measured(source, product, params)
                _keep(place, found)
        except (OnnxportError, ChildBug) as error:
            return Worth(why_not=printable(str(error).splitlines()[-1]))
        return found

    def _place(self, source: Artifact, product: Artifact, params: ValidateParams) -> Path | None:
        if self._folder is None:
            return None
        follows_from = {
            "form": _FORM,
            "source": source.digest(),
            "product": product.digest(),
            "inputs": described(params),
            "cpu": [processor(), instruction_sets(), os.cpu_count()],
            "versions": versions((*RUNS_ON["onnx"], *RUNS_ON[product.format])),
        }
        return (
            self._folder
            / f"{hashlib.sha256(json.dumps(follows_from, sort_keys=True).encode()).hexdigest()}.json"
        )


def _measured(source: Artifact, product: Artifact, params: ValidateParams) -> Worth:
    from onnxport.quantize.latency import measure_latency

    with started(source, params) as runtime:
        model, whole = load(source)
        with JudgeAhead(whole, params, runtime, model, None) as judge:
            feeds = judge.feeds()
    return Worth(latency=latency_of(measure_latency(source.path, product.path, feeds)))


def _kept(place: Path | None) -> Worth | None:
    """What an earlier run measured; nothing where that is gone or damaged."""
    if place is None:
        return None
    try:
        return Worth.model_validate_json(place.read_bytes())
    except (OSError, ValidationError):
        return None


def _keep(place: Path | None, found: Worth) -> None:
    """Where the folder cannot be written the next run measures again."""
    if place is None:
        return
    new = place.with_name(f"{place.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(found.model_dump_json(), encoding="utf-8")
        new.replace(place)
