"""ZipMap, with which scikit-learn's and the boosters' exporters end a classifier: probabilities as dictionaries.

No target and no comparison has dictionaries. The tensor in front holds the same probabilities, a column per class.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.formats.onnx_bytes import spans_without_numbers

if TYPE_CHECKING:
    import onnx

Labels = tuple[int | str, ...]

_OP = b"ZipMap"


def drop_zipmaps(proto: onnx.ModelProto) -> dict[str, Labels]:
    """Replace each ZipMap that gives an output by its tensor under the output's name, in place.

    Returns:
        Output name -> the labels of its columns.
    """
    from onnx import TensorProto, helper

    graph = proto.graph
    outputs = {value.name: value for value in graph.output}
    found: dict[str, Labels] = {}
    for node in graph.node:
        if node.op_type == "ZipMap" and node.domain == "ai.onnx.ml" and node.output[0] in outputs:
            labels = _labels(node)
            value = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [None, len(labels)])
            outputs[node.output[0]].CopyFrom(value)
            node.CopyFrom(helper.make_node("Identity", node.input, node.output, name=node.name))
            found[node.output[0]] = labels
    if found and all(entry.domain not in ("", "ai.onnx") for entry in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid("", 13))
    return found


def without_zipmaps(path: Path) -> bytes | None:
    """Return the file's model without ZipMap, external data left in their files; None where it has none."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if all(content.find(_OP, *span) < 0 for span in spans_without_numbers(content)):
                return None
        import onnx
        from google.protobuf.message import DecodeError
    except (OSError, ValueError):  # ONNX Runtime reports what is wrong with the file
        return None
    try:
        proto = onnx.load(path, load_external_data=False)
        data: bytes = proto.SerializeToString() if drop_zipmaps(proto) else b""
    except (OSError, ValueError, DecodeError):
        return None
    return data or None


def _labels(node: onnx.NodeProto) -> Labels:
    given = {attribute.name: attribute for attribute in node.attribute}
    if "classlabels_strings" in given:
        return tuple(text.decode(errors="replace") for text in given["classlabels_strings"].strings)
    return tuple(given["classlabels_int64s"].ints) if "classlabels_int64s" in given else ()
