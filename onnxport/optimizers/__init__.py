"""Passes from ONNX to ONNX."""
