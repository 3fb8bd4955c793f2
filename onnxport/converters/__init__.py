"""From ONNX to the formats that devices run."""
