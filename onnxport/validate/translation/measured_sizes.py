"""Sizes that only a run tells: those of what Loop, Scan and If give."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.core.arrays import Feeds
from onnxport.formats.model import Model
from onnxport.runtimes.base import RunError
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.layouts.sizes import BLOCKS, fix_sizes, static_sizes


def with_measured_sizes(source: Model, feeds: Feeds) -> Model:
    """Return `source` with the sizes that its blocks' results have for `feeds`; itself where inference knows them."""
    if not any(node.op_type in BLOCKS for node in source.graph):
        return source
    sized = source.clone()
    fix_sizes(sized.ir, sized.opset, {name: array.shape for name, array in feeds.items()})
    unknown = [
        value.name
        for node in sized.graph
        for value in node.outputs
        if node.op_type in BLOCKS and value.uses() and value.name and static_sizes(value) is None
    ]
    if not unknown:
        return source
    copy = source.clone()
    try:
        with OrtRuntime.of_model(copy) as runtime:
            found = runtime.run(feeds, taps=[name for name in unknown if name in runtime.taps])
    except RunError:
        return source
    for node in copy.graph:
        for value in node.outputs:
            if value.name in unknown and value.name in found:
                array = found[value.name]
                value.shape, value.type = (
                    ir.Shape(array.shape),
                    ir.TensorType(ir.DataType.from_numpy(array.dtype)),
                )
    return copy
