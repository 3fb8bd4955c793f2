"""Labels of tree ensembles where two classes tie: which one wins hangs on the last bit of a sum.

Votes of 20 trees are 10 and 10 for some rows in a hundred. Probes turn about half of such ties, so they are found by
the scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.validate.tolerance import Noise, Tolerance

# Operators behind a classifier that give its label and its scores in another form.
_SAME_ANSWER = frozenset({"Identity", "Cast", "ZipMap"})


def add_class_ties(
    noise: Mapping[str, Noise], model: Model, answers: Mapping[str, Array], tolerance: Tolerance
) -> dict[str, Noise]:
    """Return the noise of answers, with labels unstable where the scores of two classes are within the tolerance."""
    found = dict(noise)
    for label, scores in find_class_labels(model).items():
        if label not in noise or scores not in noise or noise[label].reshaped:
            continue
        rows, shape = answers[scores], answers[label].shape
        if rows.ndim != 2 or rows.shape[1] < 2 or math.prod(shape) != len(rows):
            continue
        allowed = np.broadcast_to(tolerance.allowed(scores, rows, noise[scores]), rows.shape).max(axis=1)
        second, first = np.sort(rows, axis=1)[:, -2:].T
        is_tied = (first - second <= 2 * allowed).reshape(shape)
        known = noise[label].unstable
        if is_tied.any():
            found[label] = replace(noise[label], unstable=is_tied if known is None else known | is_tied)
    return found


def find_class_labels(model: Model) -> dict[str, str]:
    """Map each graph output that is a tree ensemble's label to the output that has the scores of its classes."""
    labels, scores = dict[ir.Node, str](), dict[ir.Node, str]()
    for output in model.graph.outputs:
        value: ir.Value | None = output
        node = output.producer()
        while node is not None and node.op_type in _SAME_ANSWER:
            value = node.inputs[0]
            node = None if value is None else value.producer()
        if node is not None and node.op_type == "TreeEnsembleClassifier" and output.name:
            (labels if value is node.outputs[0] else scores)[node] = output.name
    return {label: scores[node] for node, label in labels.items() if node in scores}
