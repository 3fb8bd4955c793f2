"""A framework's model -> ONNX, one package a family of frameworks; each also runs the model, as the reference."""
