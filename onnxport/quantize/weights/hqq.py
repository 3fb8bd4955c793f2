"""Half-quadratic quantization (Badri and Shaji 2023): zero points that leave most weights nearly where they were.

The error counts by its 0.7th power, so that a few weights may be far off. It is split into a sparse part, which a
generalized soft threshold gives, and the rest, for which the best zero point is a mean (section 2 of the article).
"""

from __future__ import annotations
