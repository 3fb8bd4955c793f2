"""ONNX to Core ML: lowered to MIL with coremltools' builder in a child process, written as an .mlpackage by us."""
