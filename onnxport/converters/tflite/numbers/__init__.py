"""Arithmetic that TFLite has no kernels for: wide integers, sizes, float64, and the ways between element types."""
