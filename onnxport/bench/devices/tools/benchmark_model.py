"""LiteRT's `benchmark_model` (tflite/tools/benchmark), and the older ones of TensorFlow Lite.

Newer builds prefix lines with "INFO: ", Android's log has its own prefix, and older builds print no percentiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from onnxport.bench.devices.tools.base import Invocation, Reading, number
from onnxport.bench.report import Delegation
from onnxport.core.arrays import Array
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Format

# Provider to the tool's flags. Without XNNPACK, LiteRT runs its built-in kernels.
_FLAGS = {
    "xnnpack": ("--use_xnnpack=true",),
    "cpu": ("--use_xnnpack=false",),
    "gpu": ("--use_gpu=true",),
    "nnapi": ("--use_nnapi=true",),
    "hexagon": ("--use_hexagon=true",),
    "coreml": ("--use_coreml=true",),
}
_MIB = 1 << 20
_WARM_UP, _LEAST = 0.2, 0.1  # seconds; a phone's cores need some time to speed up
# "count=50 first=3 curr=4 min=3 max=9 avg=4.1 std=1 p5=3 median=4 p95=9", or "count=1 curr=5"; "(all same)" in between.
_COUNT = re.compile(r"count=(?P<count>\d+) (?P<rest>.*)")
_FIGURE = re.compile(r"(?P<name>\w+)=(?P<value>[-+0-9.eE]+)")
_REPLACING = re.compile(
    r"Replacing (?P<nodes>\d+) out of (?P<of>\d+) node\(s\) with delegate \((?P<name>[^)]*)\) node, "
    r"yielding (?P<partitions>\d+) partitions"
)
_APPLIED = re.compile(
    r"Explicitly applied (?P<name>\S+) delegate, and the model graph will be "
    r"(?P<extent>completely|partially) executed by the delegate(?: w/ (?P<kernels>\d+) delegate kernels)?"
)
_NOT_APPLIED = re.compile(r"Though (?P<name>\S+) delegate is explicitly applied, the model graph will not be")


class BenchmarkModel:
    name = "benchmark_model"
    word = "benchmark"
    runtime = "litert"
    formats: tuple[Format, ...] = ("tflite",)
    providers: tuple[str, ...] = tuple(_FLAGS)
    has_levels = False

    def save(self, arrays: Mapping[str, Array], folder: Path) -> Sequence[str]:
        names = []
        for number_, array in enumerate(arrays.values()):
            if array.dtype.kind not in "biufc":
                raise UsageError(f"benchmark_model cannot be fed {array.dtype.name}")
            names.append(f"input_{number_}.raw")
            (folder / names[-1]).write_bytes(np.ascontiguousarray(array).tobytes())
        return names

    def command(self, invocation: Invocation) -> list[str]:
        settings = invocation.settings
        words = [
            invocation.program,
            f"--graph={invocation.model}",
            f"--num_runs={invocation.runs}",
            f"--min_secs={_LEAST}",
            f"--max_secs={invocation.seconds:g}",
            f"--warmup_runs={max(1, invocation.warmup)}",
            f"--warmup_min_secs={_WARM_UP}",
            *_FLAGS[settings.provider or self.providers[0]],
        ]
        if settings.threads:
            words.append(f"--num_threads={settings.threads}")
        if all(
            invocation.inputs.values()
        ):  # it can be told no shape of a scalar, and makes inputs up by itself
            # Any names do: inputs are told apart by their order.
            names = [f"input_{place}" for place, _ in enumerate(invocation.inputs)]
            shapes = (",".join(map(str, shape)) for shape in invocation.inputs.values())
            files = (f"{name}:{file}" for name, file in zip(names, invocation.inputs, strict=True))
            words += [f"--input_layer={','.join(names)}", f"--input_layer_shape={':'.join(shapes)}"]
            words.append(f"--input_layer_value_files={','.join(files)}")
        return words

    def probe(self, invocation: Invocation) -> list[str] | None:
        return None

    def read(self, output: str) -> Reading | None:
        counts = [dict(_figures(line)) for line in output.splitlines() if "count=" in line]
        times = [count for count in counts if "curr" in count]
        load = number(r"Initialized session in #ms", output)
        if not times or load is None:
            return None
        warm_up, timed = times[0] if len(times) > 1 else {}, times[-1]
        only = timed["curr"]  # of runs that all took as long
        memory = r"(?:Memory footprint delta from the start of the tool|Peak memory footprint) \(MB\): "
        loaded = number(memory + "init=#", output)
        overall = number(memory + r"init=[-+0-9.eE]+ overall=#", output)
        first = warm_up.get("first", warm_up.get("curr", number(r"First inference: #", output)))
        return Reading(
            median=timed.get("median", timed.get("avg", only)) / 1000,
            least=timed.get("min", only) / 1000,
            runs=int(timed["count"]),
            load=load,
            first=None if first is None else first / 1000,
            loaded=None if loaded is None else int(loaded * _MIB),
            peak=None if overall is None else int(overall * _MIB),
            is_average="median" not in timed and "avg" in timed,
            delegations=self.read_delegations(output),
        )

    def read_delegations(self, output: str) -> tuple[Delegation, ...]:
        found = [
            Delegation(
                delegate=each["name"],
                nodes=int(each["nodes"]),
                of=int(each["of"]),
                partitions=int(each["partitions"]),
            )
            for each in _REPLACING.finditer(output)
        ]
        if found:
            return tuple(found)
        for each in _APPLIED.finditer(output):
            kernels = int(each["kernels"]) if each["kernels"] else None
            found.append(
                Delegation(
                    delegate=each["name"], extent="all" if kernels is None else "part", kernels=kernels
                )
            )
        found += [Delegation(delegate=each["name"], extent="none") for each in _NOT_APPLIED.finditer(output)]
        return tuple(found)


def _figures(line: str) -> Iterator[tuple[str, float]]:
    found = _COUNT.search(line)
    if found is not None:
        yield "count", float(found["count"])
        for each in _FIGURE.finditer(found["rest"].replace("(all same)", " ")):
            yield each["name"], float(each["value"])
