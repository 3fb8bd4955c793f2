"""What an adversarial companion's answer is sure of: no surer, relative to its scale, than those to ordinary inputs.

A probe moves each input to its neighbours, and a zero has none: measured on zeros, a network seems to have no noise at
all, and yet its biases are rounded in every layer. So the ordinary sets say how much rounding it magnifies.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.tolerance import CONCLUSIVE_NOISE, Noise, group_scales

# Times the usual noise. Silero's state, on zeros, differed between LiteRT and ONNX Runtime by 10 times the usual noise
# of the reference, on ordinary sets by 1.5: companions are there for gross faults, and need no sharp eye.
_MARGIN = 4.0


class UsualNoise:
    """The largest noise of each output as a share of the group's scale, over the ordinary sets; at most what proves."""

    def __init__(self) -> None:
        self._share: dict[str, float] = {}

    def learn(self, name: str, answer: Array, noise: Noise) -> None:
        """Takes in the answer to an ordinary set."""
        if answer.dtype.kind != "f" or noise.reshaped:
            return
        scales = group_scales(answer)
        share = float(np.max(noise.groups[scales > 0] / scales[scales > 0], initial=0.0))
        self._share[name] = max(self._share.get(name, 0.0), min(share, CONCLUSIVE_NOISE))

    def at_least(self, name: str, answer: Array, noise: Noise) -> Noise:
        """The noise of the answer to a companion, measured or usual, whichever is larger."""
        if answer.dtype.kind != "f" or noise.reshaped:
            return noise
        usual = _MARGIN * self._share.get(name, 0.0) * group_scales(answer)
        # A mean of what zeros cannot show says nothing either.
        return replace(noise, groups=np.maximum(noise.groups, usual), rms=None)
