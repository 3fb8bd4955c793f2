"""The error function, which NumPy lacks: W. J. Cody's rational approximations (Math. Comp. 23, 1969)."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array

# Up to 0.5: x * P(x^2) / Q(x^2), highest power first.
_NEAR = (
    (
        1.85777706184603153e-1,
        3.16112374387056560,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
# From 0.5 to 4: 1 - exp(-x^2) * P(x) / Q(x). Beyond 4, erf is 1 in float32.
_FAR = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)
_SLICE = 1 << 16


def erf(x: Array) -> Array:
    """Return erf of a float32 array, to float32's precision; in slices, to keep intermediate arrays small."""
    flat = np.ascontiguousarray(x, np.float32).reshape(-1)
    found = np.empty_like(flat)
    for start in range(0, flat.size, _SLICE):
        found[start : start + _SLICE] = _erf(flat[start : start + _SLICE].astype(np.float64))
    return found.reshape(x.shape)


def _erf(x: Array) -> Array:
    size = np.minimum(np.abs(x), 6)
    squared = size * size
    near = size * np.polyval(_NEAR[0], squared) / np.polyval(_NEAR[1], squared)
    far = 1 - np.exp(-squared) * np.polyval(_FAR[0], size) / np.polyval(_FAR[1], size)
    return np.copysign(np.where(size <= 0.5, near, far), x)
