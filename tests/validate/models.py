"""Small models and their verdicts."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnxport.formats.artifact import Artifact
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Report


def save(model: onnx.ModelProto, path: Path) -> Artifact:
    onnx.save(model, path)
    return Artifact.open(path)


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')


def verdict(reference: Artifact, candidate: Artifact, **options: object) -> Report:
    with Judge(reference, ValidateParams(**options)) as judge:  # type: ignore[arg-type]
        return judge.verdict(candidate)
