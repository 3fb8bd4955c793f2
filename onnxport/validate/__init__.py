"""Proves an artefact against ONNX Runtime's answer on the original."""
