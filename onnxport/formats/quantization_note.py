"""The declaration of calibration in a quantized ONNX file, from which anyone can compute its integers again.

- Ranges of activations: the ends that the calibration method chose. A grid has to reach them.
- Means of operands: bias correction moves a product's bias by (V - W) E[x] (Nagel et al. 2019, section 4.2). The file
  has V, its source has W, and E[x], the mean of each channel of the product's operand, is here.
- Factors of channels: powers of two that weights before a tensor divide by and weights behind it multiply by.

It is JSON under a metadata property of its own, beside the manifest.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.manifest import MAIN, note_key

_HALF_LIMIT = 6e4  # float16 ends at 65,504
_MOST = 60  # of an exponent: weights stay normal numbers


def quantization_key(function: str = MAIN) -> str:
    """Return the key of the declaration of one of a package's functions."""
    return f"{note_key(function)}.quantization"


NOTE_KEY = quantization_key()


def round_means(means: Array) -> Array:
    """Return means as they are declared: float16, or float32 where that is too small."""
    narrow = np.float16 if np.abs(means).max(initial=0.0) < _HALF_LIMIT else np.float32
    return np.asarray(means.astype(narrow))


@dataclass(frozen=True)
class QuantizationNote:
    """The declaration.

    Attributes:
        ranges: name of an activation, whose integers are "<name>.quantized", to the ends of its range.
        means: name of a product's node to its operand's means, from `round_means`.
        factors: name of a product's result in the source to what each of its channels is divided by here, as are those
            of all that follows up to the next products.
    """

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    means: Mapping[str, Array] = field(default_factory=dict)
    factors: Mapping[str, Array] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return canonical JSON; floats as the shortest text of their float32."""
        coded = {
            name: [each.dtype.str, base64.b64encode(each.tobytes()).decode()]
            for name, each in self.means.items()
        }
        ranges = {name: [float(str(np.float32(end))) for end in ends] for name, ends in self.ranges.items()}
        exponents = {name: np.log2(each).astype(int).tolist() for name, each in self.factors.items()}
        data = {"means": coded, "ranges": ranges} | ({"exponents": exponents} if exponents else {})
        return json.dumps(data, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> QuantizationNote | None:
        """Return what a file declares; None for nothing, or a text of another form."""
        try:
            data = json.loads(text or "")
            means = {
                name: np.frombuffer(base64.b64decode(coded), dtype).astype(np.float64)
                for name, (dtype, coded) in data["means"].items()
                if dtype in ("<f2", "<f4")
            }
            ranges = {name: (float(low), float(high)) for name, (low, high) in data["ranges"].items()}
            factors = {
                name: np.exp2(np.asarray(each, np.int16).reshape(-1).clip(-_MOST, _MOST)).astype(np.float32)
                for name, each in data.get("exponents", {}).items()
            }
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            return None
        return cls(ranges, means, factors)
