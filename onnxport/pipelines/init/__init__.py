"""`onnxport init`: writes the first pipeline.yaml of a project, and the workflow that runs it."""
