"""Names under their old address, until quantize/ and pipelines/ import session.py."""

from onnxport.bench.session import Session as Contest
from onnxport.bench.session import Subject as Contestant
from onnxport.bench.session import enough

__all__ = ["Contest", "Contestant", "enough"]
