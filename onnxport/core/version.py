"""The version of this package, where any room can read it."""

__version__ = "0.1.0"
