"""ONNX models of lower precision: params.py has the options, precisions.py the function of each precision."""
