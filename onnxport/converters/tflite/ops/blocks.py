"""DepthToSpace and SpaceToDepth: channels against blocks of space."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import channels_last, permute
from onnxport.converters.tflite.registry import lower


@lower("DepthToSpace")
def depth_to_space(node: TflNode, tfl: TflBuilder) -> None:
    """Move channels into blocks of space (ONNX DepthToSpace-13).

    TFLite counts channels as ONNX's mode DCR does, block before channel; those of CRD are put in that order.
    """
    x, block = node.x, node.attribute("blocksize")
    mode = node.attribute("mode", "DCR")
    order = channels_last(4)
    shape = permute(node.output_shape(), order)
    tensor = tfl.tensor(x, order)
    if mode == "CRD":
        channels = x.shape[1]
        if channels is None:
            node.unsupported("an open number of channels; fix the input's size with --shape NAME=...")
        source = np.arange(channels).reshape(-1, block, block).transpose(1, 2, 0).reshape(-1)
        tensor = tfl.op("gather", [tensor, tfl.int32(source)], tfl.shape_of(tensor), axis=3, batch_dims=0)
    node.emit(tfl.computed(tfl.op("depth_to_space", [tensor], shape, block_size=block), order))


@lower("SpaceToDepth")
def space_to_depth(node: TflNode, tfl: TflBuilder) -> None:
    """Move blocks of space into channels, block before channel (ONNX SpaceToDepth-13)."""
    block, order = node.attribute("blocksize"), channels_last(4)
    shape = permute(node.output_shape(), order)
    operand = tfl.tensor(node.x, order)
    node.emit(tfl.computed(tfl.op("space_to_depth", [operand], shape, block_size=block), order))
