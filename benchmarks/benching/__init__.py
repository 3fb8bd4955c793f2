"""What `onnxport bench` says beside the loops that everybody writes, and the tools that the runtimes bring."""
