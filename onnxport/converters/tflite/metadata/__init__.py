"""TFLite metadata for apps."""
