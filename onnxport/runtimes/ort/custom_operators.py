"""Libraries of custom operators, for every ONNX Runtime session of this process and of its children.

An environment variable names them, because child processes open sessions, too. The command line sets it.
"""

from __future__ import annotations

import os

import onnxruntime

from onnxport.core.errors import InputError
from onnxport.runtimes.custom_libraries import libraries
from onnxport.runtimes.ort.parsing import cause


def register_libraries(options: onnxruntime.SessionOptions) -> None:
    """Register the user's libraries of custom operators (InputError where one does not load)."""
    for library in libraries():
        try:
            options.register_custom_ops_library(os.fspath(library))
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            raise InputError(
                f"ONNX Runtime cannot load the library {library}",
                why=cause(error),
                fix="build it for this system, with the function RegisterCustomOps",
            ) from error
