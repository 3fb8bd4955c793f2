"""ONNX Runtime's `onnxruntime_perf_test` (onnxruntime/test/perftest)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from onnxport.bench.devices.tools.base import Invocation, Reading, number
from onnxport.bench.report import Delegation
from onnxport.core.arrays import Array
from onnxport.formats.artifact import Format

_LEVELS = {"disable": "0", "basic": "1", "extended": "2", "layout": "3", "all": "99"}
_FOLDER = "test_data_set_0"  # beside the model, where the tool looks for inputs
# A line of the log at level VERBOSE, of each provider: "All nodes" where there is one.
_PLACED = re.compile(r"(?:All nodes|Node\(s\)) placed on \[(?P<name>\w+)\]\. Number of nodes: (?P<nodes>\d+)")


class PerfTest:
    name = "onnxruntime_perf_test"
    word = "perf_test"
    runtime = "ort"
    formats: tuple[Format, ...] = ("onnx", "ort")
    providers: tuple[str, ...] = (
        *(
            "cpu",
            "xnnpack",
            "nnapi",
            "qnn",
            "coreml",
            "webgpu",
            "cuda",
            "tensorrt",
            "nvtensorrtrtx",
            "openvino",
        ),
        *("dml", "acl", "dnnl", "migraphx", "snpe", "vitisai", "vsinpu"),
    )
    has_levels = True

    def save(self, arrays: Mapping[str, Array], folder: Path) -> Sequence[str]:
        from onnx import numpy_helper

        names = []
        (folder / _FOLDER).mkdir()
        for place, (name, array) in enumerate(arrays.items()):
            names.append(f"{_FOLDER}/input_{place}.pb")
            tensor = numpy_helper.from_array(np.asarray(array, order="C"), name)
            (folder / names[-1]).write_bytes(tensor.SerializeToString())
        return names

    def command(self, invocation: Invocation) -> list[str]:
        # Older builds need a file for the results, and print no percentiles without -s.
        timed = ["-s", "-m", "times", "-r", str(invocation.runs), invocation.model, "/dev/null"]
        return [*self._words(invocation), *timed]

    def probe(self, invocation: Invocation) -> list[str] | None:
        if invocation.settings.provider in (None, "cpu"):
            return None
        return [*self._words(invocation), "-v", "-n", invocation.model, "/dev/null"]

    def _words(self, invocation: Invocation) -> list[str]:
        settings = invocation.settings
        words = [invocation.program, "-e", settings.provider or self.providers[0]]
        words += ["-x", str(settings.threads)] if settings.threads else []
        return words + (["-o", _LEVELS[settings.level]] if settings.level else [])

    def read(self, output: str) -> Reading | None:
        average = number(r"Average inference time cost(?: total)?: ?# ms", output)
        runs = number(r"(?:Total inference requests|Runs): ?#", output)
        if average is None or runs is None:
            return None
        load = number(r"Session creation time cost: ?# s", output)
        p50, p90, p99, least = (_seconds(name, output) for name in ("P50", "P90", "P99", "Min"))
        peak = number(r"Peak working set size: ?#", output)
        return Reading(
            median=average if p50 is None else p50,
            least=average if least is None else least,
            runs=int(runs),
            load=None if load is None else 1000 * load,
            first=number(r"First inference time cost: ?# ms", output),
            p90=p90,
            p99=p99,
            peak=None if peak is None else int(peak),
            is_average=p50 is None,
        )

    def read_delegations(self, output: str) -> tuple[Delegation, ...]:
        placed: dict[str, int] = {}
        for each in _PLACED.finditer(output):
            placed[each["name"]] = placed.get(each["name"], 0) + int(each["nodes"])
        total = sum(placed.values())
        return tuple(Delegation(delegate=name, nodes=nodes, of=total) for name, nodes in placed.items())


def _seconds(name: str, output: str) -> float | None:
    """Return a time of "P50 Latency: 0.0587 s", or "P50 Latency is 0.0587sec" of older builds, in milliseconds."""
    found = number(rf"{name} Latency(?: is|:) ?# ?s", output)
    return None if found is None else 1000 * found
