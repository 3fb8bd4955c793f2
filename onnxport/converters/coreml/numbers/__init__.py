"""Arithmetic that MIL has no operators for."""
