"""Kernels of MIL's operators, one module per family of Apple's documentation; importing this package registers all."""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
