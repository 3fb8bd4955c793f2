"""Kernels by family; importing this package fills the registry."""

from onnxport.validate.runtimes.mil.kernels import elementwise

__all__ = ["elementwise"]
