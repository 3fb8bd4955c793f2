"""Core ML's protobuf messages, from coremltools but without importing it: that takes seconds and a dozen libraries."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

_ALIAS = "onnxport_coreml_proto"


def messages(name: str) -> Any:
    """The generated module of one `.proto` file ("Model", "MIL").

    Raises:
        ImportError: coremltools is not installed.
    """
    if _ALIAS not in sys.modules:
        found = importlib.util.find_spec("coremltools")
        if found is None or found.origin is None:
            raise ImportError("coremltools is not installed")
        package = types.ModuleType(_ALIAS)
        # The generated modules import each other as siblings, so that they work in a package of any name.
        package.__path__ = [str(Path(found.origin).parent / "proto")]
        sys.modules[_ALIAS] = package
    return importlib.import_module(f"{_ALIAS}.{name}_pb2")
