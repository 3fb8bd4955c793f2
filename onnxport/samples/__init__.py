"""Input data: read from the user's files, or generated within the domains that a graph implies."""

from __future__ import annotations

from onnxport.samples.readers import Sample

__all__ = ["Sample"]
