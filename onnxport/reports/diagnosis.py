"""A name under its old address, until cli/ imports run/diagnosis.py."""

from onnxport.reports.run.diagnosis import diagnosis_lines

__all__ = ["diagnosis_lines"]
