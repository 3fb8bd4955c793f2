"""BatchNormalization in training mode, which no target has."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.terms import Draft, Term, formula


def _trains(node: ir.Node) -> bool:
    attribute = node.attributes.get("training_mode")
    return attribute is not None and bool(attribute.value)


@formula("BatchNormalization", _trains)
def batch_normalization_in_training(draft: Draft) -> list[Term | None]:
    """Normalize by the batch's mean and variance, and update the running ones (ONNX BatchNormalization-15)."""
    draft.ignore("training_mode")
    x = draft.input(0)
    scale, bias, mean, variance = (draft.input(index).cast(np.float32) for index in range(1, 5))
    epsilon, momentum = draft.attribute("epsilon", 1e-5), draft.attribute("momentum", 0.9)
    wide, axes = x.cast(np.float32), (0, *range(2, x.rank))
    batch_mean = wide.mean(*axes, keep=True)
    centred = wide - batch_mean
    batch_variance = (centred * centred).mean(*axes, keep=True)
    along = (1, -1, *(1,) * (x.rank - 2))
    factor = scale.reshape(*along) / (batch_variance + epsilon).call("Sqrt")
    result = centred * factor + bias.reshape(*along)
    moved = [
        running * momentum + own.reshape(-1) * (1.0 - momentum)
        for running, own in ((mean, batch_mean), (variance, batch_variance))
    ]
    results: list[Term | None] = [result.cast(x.dtype)]
    for index, value in enumerate(moved, 1):
        results.append(value.cast(draft.input(2 + index).dtype) if draft.wants(index) else None)
    return results
