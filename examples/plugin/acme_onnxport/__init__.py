"""A plugin for onnxport: a stage that models share and a target. stages.py declares them, workers.py does the work."""
