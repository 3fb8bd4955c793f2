"""ONNX files in the engines of others, each of which brings its own reader of ONNX or its own converter.

engine.py     what they have in common: the model's signature, one load per sizes, taps, whose fault what is
native_output.py  what native code says on the way
tract.py, openvino.py, ncnn.py, mnn.py: one engine each, imported when it is asked for
"""
