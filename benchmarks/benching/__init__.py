"""`onnxport bench` compared with plain loops and with the runtimes' own tools."""
