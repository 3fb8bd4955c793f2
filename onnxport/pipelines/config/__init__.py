"""Reads a pipeline.yaml: the file with its lines, the schema, and the resulting pipeline."""
