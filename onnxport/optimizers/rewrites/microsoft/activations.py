"""Activations of com.microsoft, some with a bias added first."""

from __future__ import annotations

import numpy as np

from onnxport.optimizers.rewrites.registry import Rewrite, rewrites


@rewrites("com.microsoft::Gelu")
def gelu(node: Rewrite) -> None:
    """Compute x * (1 + erf(x / sqrt 2)) / 2."""
    node.emit(node.op("Gelu", node.input(0), approximate="none"))


@rewrites("com.microsoft::BiasGelu")
def bias_gelu(node: Rewrite) -> None:
    """Gelu of x + bias."""
    node.emit(node.op("Gelu", node.op("Add", node.input(0), node.input(1)), approximate="none"))


@rewrites("com.microsoft::FastGelu")
def fast_gelu(node: Rewrite) -> None:
    """Gelu of x + bias, by tanh."""
    x = node.input(0)
    if node.has_input(1):
        x = node.op("Add", x, node.input(1))
    node.emit(node.op("Gelu", x, approximate="tanh"))


@rewrites("com.microsoft::QuickGelu")
def quick_gelu(node: Rewrite) -> None:
    """Compute x * sigmoid(alpha * x)."""
    x = node.input(0)
    alpha = np.asarray(node.attribute("alpha", 1.702), node.dtype(x))
    scaled = x if alpha == 1 else node.op("Mul", x, alpha)
    node.emit(node.op("Mul", x, node.op("Sigmoid", scaled)))
