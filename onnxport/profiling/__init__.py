"""Where the time of a run goes, by the runtime's own profiler, told in nodes of the ONNX model."""
