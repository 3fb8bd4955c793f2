"""Where the time of a run goes, by the runtime's own profiler and in nodes of the ONNX model."""
