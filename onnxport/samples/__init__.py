"""Input data: read from the user's files, or generated inside the domain that a graph implies."""

from __future__ import annotations

from onnxport.samples.readers import Sample

__all__ = ["Sample"]
