"""What ONNX Runtime leaves of a model when it loads it: the graph that its execution providers are asked about."""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from onnxport.deployment.asking.ort import REFUSALS
from onnxport.errors import InputError

_FATAL = 4  # log severity
_LARGE = 2**30  # bytes; above, weights go to a file beside the graph: protobuf holds 2 GB


class Loading:
    """The child's side."""

    def load(self, path: Path, weight_bytes: int, to: Path) -> None:
        """Writes the graph after basic optimizations to `to`.

        Raises:
            InputError: ONNX Runtime cannot load the model.
        """
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = _FATAL
        settings.intra_op_num_threads = 1
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        settings.optimized_model_filepath = str(to)
        settings.add_session_config_entry("session.disable_prepacking", "1")  # it never runs
        if weight_bytes > _LARGE:
            beside = "session.optimized_model_external_initializers_file_name"
            settings.add_session_config_entry(beside, to.name + ".data")
        try:
            onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        except REFUSALS as error:
            raise InputError("ONNX Runtime cannot load it", why=" ".join(str(error).split())[:300]) from error
