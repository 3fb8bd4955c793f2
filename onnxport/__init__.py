"""onnxport: ONNX models to TFLite, Core ML and ONNX Runtime format, each artefact proven against ONNX Runtime.

    onnxport.export_model("mypkg.models:build", "model.onnx", input={"x": "1,3,224,224:float32"})
    result = onnxport.convert_model("model.onnx", to="tflite")
    report = onnxport.validate_model("model.onnx", "model.tflite")
    report = onnxport.debug_model("model.onnx", "model.tflite")  # report.diagnosis.node
    report = onnxport.bench_models(["model.onnx", "model.tflite"], threads=(1, 2))  # report.rows
    report = onnxport.run_pipeline("pipeline.yaml", jobs=2)  # report.cells
    with onnxport.load("model.tflite") as runtime:
        answers = runtime.run({"input": array})

The names below are imported on first use: `import onnxport` itself loads no library.
"""

from __future__ import annotations

import importlib
import os

# ONNX Runtime 1.29 and later sends telemetry of every session and stores a device number in the home folder, unless
# this is set before its first import. A value of the user's stays.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from onnxport.core.lazy_imports import defer
from onnxport.core.version import __version__

defer()

TYPE_CHECKING = False  # type checkers read it as true; saves the import of typing
if TYPE_CHECKING:
    from onnxport.api import (
        ConversionResult,
        bench_models,
        convert_model,
        debug_model,
        export_model,
        extract_model,
        inspect_deployment,
        load,
        optimize_model,
        plan_memory,
        profile_model,
        quantize_model,
        validate_model,
        write_samples,
    )
    from onnxport.bench.report import BenchReport
    from onnxport.core.errors import OnnxportError
    from onnxport.core.limits import limits
    from onnxport.formats.artifact import TensorSpec
    from onnxport.reports.pipeline_report import PipelineReport
    from onnxport.runtimes.base import Runtime
    from onnxport.validate.custom_metrics import metric
    from onnxport.validate.report import Report

__all__ = [
    "BenchReport",
    "ConversionResult",
    "OnnxportError",
    "PipelineReport",
    "Report",
    "Runtime",
    "TensorSpec",
    "__version__",
    "bench_models",
    "convert_model",
    "debug_model",
    "export_model",
    "extract_model",
    "inspect_deployment",
    "limits",
    "load",
    "metric",
    "optimize_model",
    "plan_memory",
    "profile_model",
    "quantize_model",
    "run_pipeline",
    "validate_model",
    "write_samples",
]

_HOMES = {
    "BenchReport": "onnxport.bench.report",
    "ConversionResult": "onnxport.api",
    "OnnxportError": "onnxport.core.errors",
    "PipelineReport": "onnxport.reports.pipeline_report",
    "Report": "onnxport.validate.report",
    "Runtime": "onnxport.runtimes.base",
    "TensorSpec": "onnxport.formats.artifact",
    "bench_models": "onnxport.api",
    "convert_model": "onnxport.api",
    "debug_model": "onnxport.api",
    "export_model": "onnxport.api",
    "extract_model": "onnxport.api",
    "inspect_deployment": "onnxport.api",
    "optimize_model": "onnxport.api",
    "plan_memory": "onnxport.api",
    "profile_model": "onnxport.api",
    "limits": "onnxport.core.limits",
    "load": "onnxport.api",
    "metric": "onnxport.validate.custom_metrics",
    "quantize_model": "onnxport.api",
    "run_pipeline": "onnxport.api",
    "validate_model": "onnxport.api",
    "write_samples": "onnxport.api",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'onnxport' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
