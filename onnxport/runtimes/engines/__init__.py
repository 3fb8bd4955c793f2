"""Third-party engines that run ONNX files by a reader or a converter of their own.

base.py           what they share: the model's signature, one load per choice of sizes, taps, errors
native_output.py  captures what native code prints
tract.py, openvino.py, ncnn.py, mnn.py: one engine each, imported when it is used
"""
