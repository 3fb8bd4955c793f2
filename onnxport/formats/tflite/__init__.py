"""The `.tflite` file: its inputs, its outputs and the names of its tensors."""
