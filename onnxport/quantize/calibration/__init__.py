"""What a model's tensors hold on the user's samples: one pass, in constant memory."""

from onnxport.quantize.calibration.calibrator import Resources, calibrate

__all__ = ["Resources", "calibrate"]
