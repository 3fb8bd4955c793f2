"""Boosters inside scikit-learn pipelines: converters that skl2onnx calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from skl2onnx import update_registered_converter
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
from sklearn.base import is_classifier

from onnxport.core.errors import CannotConvertError
from onnxport.exporters.classical.boosters import is_booster, of_object
from onnxport.exporters.classical.boosters.forest import Answers, Forest
from onnxport.exporters.classical.boosters.graph import build_model
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source


def register(estimator: Any) -> None:
    """Register a booster's class with skl2onnx; do nothing for others."""
    kind = type(estimator)
    if not is_booster(kind):
        return
    options = {"zipmap": [True, False, "columns"]} if is_classifier(estimator) else None
    update_registered_converter(kind, f"Booster{kind.__name__}", _shapes, _convert, options=options)


def _read(estimator: Any) -> tuple[Forest, Answers]:
    booster = of_object(estimator, Source(type(estimator).__name__, "python", ()), ExportParams())
    return booster.forest, booster.answers


def _shapes(operator: Any) -> None:
    forest, answers = _read(operator.raw_operator)
    rows = operator.inputs[0].get_first_dimension()
    if len(operator.outputs) > 1:
        texts = bool(answers.classes) and np.asarray(answers.classes).dtype.kind in "OUS"
        labels = [rows, forest.targets] if answers.several else [rows]
        operator.outputs[0].type = (StringTensorType if texts else Int64TensorType)(labels)
    operator.outputs[-1].type = FloatTensorType([rows, 2 if answers.both else forest.targets])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Insert the nodes of the booster's model into the pipeline's, under unique names."""
    forest, answers = _read(operator.raw_operator)
    if len(operator.inputs) != 1:
        raise CannotConvertError(
            f"{type(operator.raw_operator).__name__} takes {len(operator.inputs)} tables in this pipeline",
            fix="put a transformer before it that joins the columns (ColumnTransformer, or FunctionTransformer)",
        )
    given = operator.inputs[0]
    dtype = "float64" if isinstance(given.type, DoubleTensorType) else "float32"
    model = build_model(forest, answers, dtype, container.target_opset)
    names: dict[str, str] = {model.graph.input[0].name: given.full_name}
    outputs = zip(model.graph.output, operator.outputs, strict=True)
    names |= {inner.name: outer.full_name for inner, outer in outputs}

    def outer(name: str) -> str:
        if name not in names:
            names[name] = scope.get_unique_variable_name(name)
        return names[name]

    for tensor in model.graph.initializer:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = outer(tensor.name)
        container.initializers.append(copy)
    versions = {each.domain: each.version for each in model.opset_import}
    for node in model.graph.node:
        node.input[:] = [outer(name) for name in node.input]
        node.output[:] = [outer(name) for name in node.output]
        node.name = scope.get_unique_operator_name(node.op_type)
        container.node_domain_version_pair_sets.add((node.domain, versions[node.domain]))
        container.nodes.append(node)
