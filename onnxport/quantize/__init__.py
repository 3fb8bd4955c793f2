"""Lower precision: ONNX in, ONNX out. params.py is what a user may ask, precisions.py who does it."""
