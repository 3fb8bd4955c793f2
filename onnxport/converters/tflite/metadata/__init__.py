"""TFLite metadata for apps, and our manifest put into files that others made."""
