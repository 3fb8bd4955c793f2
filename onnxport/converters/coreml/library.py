"""coremltools, imported without the frameworks that it would import, its warnings about them, and its progress bars.

With all frameworks installed, their import takes nine seconds of CPU time. So no other module of this package imports
coremltools by its own name.
"""

from __future__ import annotations

import logging
import os
import warnings

from onnxport.core.lazy_imports import hidden

# Frameworks that coremltools imports if it finds them; our programs need none.
_FRAMEWORKS = (
    "torch torchvision torchaudio torchao tensorflow sklearn xgboost libsvm transformers executorch".split()
)

os.environ.setdefault("TQDM_DISABLE", "1")
logging.getLogger("coremltools").setLevel(logging.ERROR)
with hidden(_FRAMEWORKS), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from coremltools import proto
    from coremltools import target as targets
    from coremltools._deps import _kmeans1d as kmeans1d
    from coremltools.converters.mil.backend.mil.load import MILProtoExporter
    from coremltools.converters.mil.mil import Builder as mb
    from coremltools.converters.mil.mil import (
        Function,
        Placeholder,
        Program,
        Var,
        get_new_symbol,
        mil_list,
        types,
    )
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY
    from coremltools.converters.mil.mil.program import StateTensorPlaceholder
    from coremltools.converters.mil.mil.types.symbolic import any_symbolic
    from coremltools.optimize.coreml import (
        OpLinearQuantizerConfig,
        OpMagnitudePrunerConfig,
        OpPalettizerConfig,
        OptimizationConfig,
    )
    from coremltools.optimize.coreml._quantization_passes import (
        linear_quantize_weights,
        palettize_weights,
        prune_weights,
    )

__all__ = [
    "PASS_REGISTRY", "Function", "MILProtoExporter", "OpLinearQuantizerConfig", "OpMagnitudePrunerConfig",
    "OpPalettizerConfig", "OptimizationConfig", "Placeholder", "Program", "StateTensorPlaceholder", "Var",
    "any_symbolic", "get_new_symbol", "kmeans1d", "linear_quantize_weights", "mb", "mil_list", "palettize_weights",
    "proto", "prune_weights", "targets", "types",
]  # fmt: skip
