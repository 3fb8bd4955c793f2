"""coremltools, imported without what it would drag in: TensorFlow, torch and their kind, its warnings about them, and
its progress bars. Every module of this room that needs coremltools imports this one first.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator

# Frameworks that coremltools imports where it finds them; none is needed for a program of ours.
_FRAMEWORKS = (
    "torch torchvision torchaudio torchao tensorflow sklearn xgboost libsvm transformers executorch".split()
)


@contextlib.contextmanager
def _hidden(names: list[str]) -> Iterator[None]:
    """Makes the imports of `names` fail for a while, except of those that are here already."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


def import_quietly() -> None:
    """Imports coremltools."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    with _hidden(_FRAMEWORKS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import coremltools  # noqa: F401


import_quietly()
