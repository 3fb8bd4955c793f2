"""Calibration within a limit of memory: fewer processes first, then fewer tensors at a time.

What a process takes is what it takes to start, the weights, and the watched tensors of one sample, which live until all
observers have seen them; the last alone are ours to divide. A sample is then run once for every part of the taps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from onnxport.errors import UsageError
from onnxport.quantize.calibration.observers import Observer
from onnxport.quantize.calibration.session import external_files
from onnxport.quantize.calibration.shards import Taps
from onnxport.samples.readers import SampleFile

# Of a process with Python, NumPy, onnx and ONNX Runtime, before it has loaded a model.
_PROCESS = 160 * 2**20
# The weights as they lie in the file and as ONNX Runtime's kernels want them.
_COPIES = 2
# What a tensor takes: itself, once more in the layout of the kernel that makes it, and what the observers make of it.
_PER_TENSOR = 3


def parted(
    path: Path, taps: Taps, example: SampleFile, limit: int | None, jobs: int
) -> tuple[tuple[Taps, ...], int]:
    """The taps in parts that fit, and how many processes do.

    Args:
        example: a sample as large as they come.
        limit: bytes for all processes together; None for no limit.
        jobs: the most processes.

    Raises:
        UsageError: not even one tensor fits.
    """
    if limit is None:
        return (taps,), jobs
    sizes = _sizes(path, taps, example)
    largest = max(sizes.values()) * _PER_TENSOR
    base = _PROCESS + _COPIES * _weights(path)
    room = limit // jobs - base
    while jobs > 1 and room < largest:
        jobs -= 1
        room = limit // jobs - base
    if room < largest:
        raise UsageError(
            f"--memory-limit {limit // 2**20}MB does not hold this calibration",
            why=f"one tensor at a time takes about {math.ceil((base + largest) / 2**20)} MB",
            fix="give at least that",
        )
    parts: list[dict[str, Sequence[Observer]]] = [{}]
    taken = 0
    for name, observers in taps.items():
        size = sizes[name] * _PER_TENSOR
        if parts[-1] and taken + size > room:
            parts.append({})
            taken = 0
        parts[-1][name] = observers
        taken += size
    return tuple(parts), jobs


def _sizes(path: Path, taps: Taps, example: SampleFile) -> Mapping[str, int]:
    """Bytes of each tap on the example; one whose shape cannot be told counts as the largest that can."""
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


def _weights(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *external_files(path)))
