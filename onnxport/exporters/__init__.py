"""From a framework's model to ONNX, one package per family of frameworks; each also runs the model as the reference."""
