"""ONNX Runtime, with exact integer arithmetic on every CPU."""
