"""Calibration within a memory limit: fewer processes first, then fewer tensors at a time.

A process of its own measures once what starting and running the model takes. Beside that a process holds the watched
tensors of one sample; only these can be divided. A sample is then run once for every part of the taps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from onnxport.core.child_process import Child
from onnxport.core.errors import UsageError
from onnxport.quantize.calibration.observers import Observer
from onnxport.quantize.calibration.shards import Bench, Taps, Task
from onnxport.runtimes.custom_libraries import writable
from onnxport.samples.readers import SampleFile

# What an observer makes of the tensor that it is shown, in sizes of that.
_PER_OBSERVER = 2
# Of a process whose system does not tell.
_PROCESS = 300 * 2**20


def split_taps(
    path: Path, taps: Taps, example: SampleFile, limit: int | None, jobs: int
) -> tuple[tuple[Taps, ...], int]:
    """Split the taps into parts that fit, and return the number of processes that fit, at most `jobs`.

    Args:
        example: a sample as large as they come.
        limit: bytes for all processes together; None for no limit; UsageError if not even one tensor fits.
    """
    if limit is None:
        return (taps,), jobs
    sizes = _sizes(path, taps, example)
    largest = max(sizes.values())
    base = _measure_process(path, taps, min(sizes, key=sizes.__getitem__), example) + _PER_OBSERVER * largest
    jobs = max(1, min(jobs, limit // (base + largest)))
    room = limit // jobs - base
    if room < largest:
        raise UsageError(
            f"--memory-limit {limit // 1_000_000}MB does not hold this calibration",
            why=f"with one tensor at a time it takes about {math.ceil((base + largest) / 1e6)} MB",
            fix="give at least that, or smaller samples",
        )
    return tuple(_fill_parts(taps, sizes, room)), jobs


def _fill_parts(taps: Taps, sizes: Mapping[str, int], room: int) -> list[dict[str, Sequence[Observer]]]:
    """Return the taps, in order, in parts of at most `room` bytes."""
    parts: list[dict[str, Sequence[Observer]]] = [{}]
    taken = 0
    for name, observers in taps.items():
        if parts[-1] and taken + sizes[name] > room:
            parts.append({})
            taken = 0
        parts[-1][name] = observers
        taken += sizes[name]
    return parts


class Gauge(Bench):
    """A bench that measures its process's memory."""

    def peak(self) -> int:
        """Return the peak memory of this process, in bytes."""
        # Not getrusage's figure: on Linux a process inherits that of the one that started it.
        try:
            status = Path("/proc/self/status").read_text()
        except OSError:  # no Linux
            return _PROCESS
        return int(status.split("VmHWM:")[1].split()[0]) * 1024


def _measure_process(path: Path, taps: Taps, smallest: str, example: SampleFile) -> int:
    """Return the bytes of a process that shows only the smallest tap."""
    others = {name: observers for name, observers in taps.items() if name != smallest}
    task = Task(path, ({smallest: taps[smallest]}, others), {0: example})
    task.write()
    purpose = "the process that measures what calibration takes"
    with Child(f"{__name__}:Gauge", purpose=purpose, writes=writable()) as child:
        child.call("begin", task)
        child.call("observed", [(0, 0)])
        peak: int = child.call("peak")
    return peak


def _sizes(path: Path, taps: Taps, example: SampleFile) -> Mapping[str, int]:
    """Return the bytes of each tap on the example; an unknown shape counts as the largest known."""
    model = onnx.load(path, load_external_data=False)
    feeds = example.load().feeds
    for value in model.graph.input:
        if value.name in feeds:
            del value.type.tensor_type.shape.dim[:]
            for size in feeds[value.name].shape:
                value.type.tensor_type.shape.dim.add(dim_value=size)
    del model.graph.value_info[:]  # of the open sizes
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    known = {value.name: _bytes(value) for value in (*graph.input, *graph.value_info, *graph.output)}
    most = max((size for size in known.values() if size is not None), default=0)
    return {name: known.get(name) or most for name in taps}


def _bytes(value: onnx.ValueInfoProto) -> int | None:
    dims = value.type.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    return math.prod(dim.dim_value for dim in dims) * np.dtype(np.float32).itemsize
