"""ONNX -> TFLite: ops of the `tfl` dialect made directly, folded and serialized by Google's own compiler."""
