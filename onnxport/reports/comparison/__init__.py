"""What differs between two models, as `onnxport diff` shows it."""
