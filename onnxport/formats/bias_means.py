"""The means by which biases were corrected, as an artefact declares them.

Bias correction moves a product's bias by (V - W) E[x] (Nagel et al. 2019, section 4.2). The file has V, its source has
W; E[x], the mean of each channel of the product's operand, is written here, so that anyone can compute the bias again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.manifest import KEY

BIAS_MEANS = f"{KEY}.bias_means"
_HALF_LIMIT = 6e4  # float16 ends at 65,504


def round_means(means: Array) -> Array:
    """Return means as they are declared: float16, or float32 where that is too small."""
    narrow = np.float16 if np.abs(means).max(initial=0.0) < _HALF_LIMIT else np.float32
    return np.asarray(means.astype(narrow))


def write_means(means: Mapping[str, Array]) -> str:
    """Return JSON: name of a product's node to its operand's means, from `round_means`."""
    coded = {
        name: [each.dtype.str, base64.b64encode(each.tobytes()).decode()] for name, each in means.items()
    }
    return json.dumps(coded, sort_keys=True, separators=(",", ":"))


def read_means(text: str) -> dict[str, Array]:
    """Return name of a product's node to float64 means; nothing for a text of another form."""
    try:
        return {
            name: np.frombuffer(base64.b64decode(data), dtype).astype(np.float64)
            for name, (dtype, data) in json.loads(text).items()
            if dtype in ("<f2", "<f4")
        }
    except (ValueError, TypeError, AttributeError):
        return {}
