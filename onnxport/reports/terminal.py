"""Names under their old address, until cli/ and examples/ import run/terminal.py and inspection.py."""

from onnxport.reports.inspection import inspection_lines
from onnxport.reports.run.terminal import notes, result_lines
from onnxport.reports.wording import human_size

__all__ = ["human_size", "inspection_lines", "notes", "result_lines"]
