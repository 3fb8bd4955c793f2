"""DepthToSpace and SpaceToDepth: channels against blocks of space."""

from __future__ import annotations

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView


@lower("DepthToSpace")
def depth_to_space(node: NodeView[Value], mil: MilBuilder) -> None:
    """Move channels into blocks of space (ONNX DepthToSpace-13)."""
    x, size, mode = node.x, node.attribute("blocksize"), node.attribute("mode", "DCR")
    if size == 1:
        node.emit(mil.identity(x=x))
    elif x.is_float and mode == "DCR":
        node.emit(mil.depth_to_space(x=x, block_size=size))
    elif x.is_float:
        node.emit(mil.pixel_shuffle(x=x, upscale_factor=size))
    else:
        _, channels, height, width = _sizes(node)
        depth = channels // size**2
        # Columns first, then rows: both at once would take six axes.
        if mode == "CRD":
            split, merged, perm = [depth * size, size, height, width], [depth, size], [0, 1, 3, 2, 4]
        else:
            split, merged, perm = [size, size, depth * height, width], [size, depth], [0, 2, 3, 1, 4]
        columns = mil.transpose(x=mil.reshape(x=x, shape=[-1, *split]), perm=[0, 1, 3, 4, 2])
        wide = mil.reshape(x=columns, shape=[-1, *merged, height, width * size])
        tall = mil.transpose(x=wide, perm=perm)
        node.emit(mil.reshape(x=tall, shape=[-1, depth, height * size, width * size]))


@lower("SpaceToDepth")
def space_to_depth(node: NodeView[Value], mil: MilBuilder) -> None:
    """Move blocks of space into channels (ONNX SpaceToDepth-13)."""
    x, size = node.x, node.attribute("blocksize")
    if size == 1:
        node.emit(mil.identity(x=x))
    elif x.is_float:
        node.emit(mil.space_to_depth(x=x, block_size=size))
    else:
        _, channels, height, width = _sizes(node)
        columns = mil.reshape(x=x, shape=[-1, channels, height, width // size, size])
        columns = mil.transpose(x=columns, perm=[0, 4, 1, 2, 3])
        rows = mil.reshape(x=columns, shape=[-1, size * channels, height // size, size, width // size])
        rows = mil.transpose(x=rows, perm=[0, 3, 1, 2, 4])
        node.emit(mil.reshape(x=rows, shape=[-1, channels * size**2, height // size, width // size]))


def _sizes(node: NodeView[Value]) -> list[int]:
    if None in node.x.shape[1:]:
        node.unsupported("moves integers of an open size; fix it with --shape NAME=...")
    return [dim or 0 for dim in node.x.shape]
