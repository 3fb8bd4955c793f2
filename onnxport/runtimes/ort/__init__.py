"""ONNX Runtime on the CPU, and the exact integer arithmetic that its answers are held to."""
