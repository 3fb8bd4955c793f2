"""Calibration: observe a model's tensors on the user's samples, in one pass and constant memory."""

from onnxport.quantize.calibration.calibrator import Resources, calibrate

__all__ = ["Resources", "calibrate"]
