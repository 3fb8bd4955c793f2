"""The `.tflite` file: its signature and the names of its tensors."""
