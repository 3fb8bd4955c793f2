"""What the runtimes themselves say of the memory of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from onnxport.core.arrays import Array
from onnxport.formats.graph.tflite import read_tflite


def litert_arena(path: Path) -> int:
    """Bytes between the first and the last byte of LiteRT's tensors, with kernels that take no scratch memory."""
    interpreter = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    tensors = read_tflite(path, distinct=True).main.tensors
    starts, ends = [], []
    for details in interpreter.get_tensor_details():
        place = details["index"]
        if place < len(tensors) and tensors[place].is_constant:
            continue
        try:
            view = interpreter.tensor(place)()
        except ValueError:  # it has no memory
            continue
        if view.nbytes:
            starts.append(view.__array_interface__["data"][0])
            ends.append(starts[-1] + view.nbytes)
        del view  # the interpreter forbids views across its calls
    return max(ends) - min(starts)


def ort_peak(path: Path, feeds: Mapping[str, Array], folder: Path) -> int:
    """Most bytes that ONNX Runtime's allocator has given out after a node of a run, without fusions."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(path), options)
    session.run(None, dict(feeds))
    events = json.loads(Path(session.end_profiling()).read_text())
    nodes = [event["args"] for event in events if event["cat"] == "Node"]
    used = [int(node["mem_bytes_requested_in_use"]) for node in nodes]
    before = used[0] - int(nodes[0]["mem_requested_in_use_delta"])
    return max(used) - before


def feeds_of(shapes: Mapping[str, tuple[int, ...]], dtype: type = np.float32) -> dict[str, Array]:
    return {name: np.ones(shape, dtype) for name, shape in shapes.items()}
