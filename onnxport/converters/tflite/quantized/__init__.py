"""Quantized models: their tensors, their ports, and what computes in integers in the end."""
