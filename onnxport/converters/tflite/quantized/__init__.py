"""Quantized models: their tensors, their ports, and the notes on integer kernels."""
