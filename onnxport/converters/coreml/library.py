"""coremltools, imported without what it would drag in: TensorFlow, torch and their kind, its warnings about them, and
its progress bars. Every module of this room that needs coremltools imports this one first.
"""

from __future__ import annotations

import logging
import os
import warnings

from onnxport.deferred import hidden

# Frameworks that coremltools imports where it finds them; none is needed for a program of ours.
_FRAMEWORKS = (
    "torch torchvision torchaudio torchao tensorflow sklearn xgboost libsvm transformers executorch".split()
)


def import_quietly() -> None:
    """Imports coremltools."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    with hidden(_FRAMEWORKS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import coremltools  # noqa: F401


import_quietly()
