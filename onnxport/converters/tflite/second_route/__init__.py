"""onnx2tf, out of process, and what it takes to judge a file that it made."""
