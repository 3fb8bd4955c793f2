"""ZipMap: probabilities as a list of dictionaries, skl2onnx's default.

It is added after the proof: dictionaries cannot be compared, and only ONNX Runtime takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from onnxport.core.errors import UsageError

TENSOR = "probabilities"
MAPPED = "output_probability"


def check_classes(classes: Sequence[object] | None, source: str) -> None:
    """Refuse --zipmap without classes that can be keys of a dictionary (UsageError)."""
    if not classes or not all(isinstance(each, (int, str)) for each in classes):
        raise UsageError(
            f"--zipmap has no effect on {source}",
            why="it gives no probabilities of classes that are integers or texts",
            fix="leave it out",
        )


def add_zipmap(path: Path, classes: Sequence[int | str]) -> None:
    """Replace the output TENSOR of the file by the list of dictionaries, called MAPPED."""
    model = onnx.load(path)
    texts = isinstance(classes[0], str)
    labels: dict[str, Any] = {"classlabels_strings" if texts else "classlabels_int64s": list(classes)}
    # ZipMap takes float32 alone.
    model.graph.node.extend(
        [
            helper.make_node("Cast", [TENSOR], [f"{TENSOR}_float32"], to=TensorProto.FLOAT),
            helper.make_node(
                "ZipMap", [f"{TENSOR}_float32"], [MAPPED], "ZipMap", domain="ai.onnx.ml", **labels
            ),
        ]
    )
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    key = TensorProto.STRING if texts else TensorProto.INT64
    mapped = helper.make_value_info(
        MAPPED, helper.make_sequence_type_proto(helper.make_map_type_proto(key, number))
    )
    outputs = [mapped if output.name == TENSOR else output for output in model.graph.output]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    if "ai.onnx.ml" not in {entry.domain for entry in model.opset_import}:
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    path.write_bytes(model.SerializeToString(deterministic=True))
