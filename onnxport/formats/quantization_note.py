"""The declaration of calibration in a quantized ONNX file, from which anyone can compute its integers again.

- Ranges of activations: the ends that the calibration method chose. A grid has to reach them.
- Means of operands: bias correction moves a product's bias by (V - W) E[x] (Nagel et al. 2019, section 4.2). The file
  has V, its source has W, and E[x], the mean of each channel of the product's operand, is here.
- Factors of channels: what weights before a tensor divide by, and weights behind it multiply by.

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
# A factor is 2^(k / 4), for a k of 8 bits.
_PARTS = 4


def quantization_key(function: str = MAIN) -> str:
    """Return the key of the declaration of one of a package's functions."""
    return f"{note_key(function)}.quantization"


NOTE_KEY = quantization_key()


def round_means(means: Array) -> Array:
    """Return means as they are declared: float16, or float32 where that is too small."""
    narrow = np.float16 if np.abs(means).max(initial=0.0) < _HALF_LIMIT else np.float32
    return np.asarray(means.astype(narrow))


def round_factors(factors: Array) -> Array:
    """Return factors as they are declared: float32, to the nearest power of 2^(1/4)."""
    return _factors(_exponents(factors))


def _exponents(factors: Array) -> Array:
    return np.asarray(np.rint(_PARTS * np.log2(factors.astype(np.float64))), np.int8)


def _factors(exponents: Array) -> Array:
    return np.asarray(np.exp2(exponents / _PARTS), np.float32)


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
        exponents = {
            name: base64.b64encode(_exponents(each).tobytes()).decode() for name, each in self.factors.items()
        }
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
                name: _factors(np.frombuffer(base64.b64decode(each), np.int8))
                for name, each in data.get("exponents", {}).items()
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        return cls(ranges, means, factors)
