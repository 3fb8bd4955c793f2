"""Why cases are refused, in words that are the same for all cases with one cause."""

from __future__ import annotations

import re

from onnxport.core.errors import CannotConvertError, OnnxportError, Refusal

# What a refusal says -> its cause. The first that fits; what follows a semicolon is the way out and no cause.
_CAUSES = tuple(
    (re.compile(pattern), cause)
    for pattern, cause in (
        (r"is of type string", "text"),
        (r"is of type (float8|float4)\w*, which", r"\1 at an input or output"),
        (r"is of type (\w+), which", r"\1 at an input or output"),
        (r"holds no tensor|is of type \S*(?:seq|optional)", "a sequence or optional at an input or output"),
        (r"does not run whole on LiteRT's GPU runtime: ([^.;]+)", r"\1"),
        (r"has no lowering to TFLite yet", "no lowering yet"),
        (r"no string operators", "text"),
        (r"has opset (\d+), older than \d+", "an opset older than 7"),
        (r"(.+?) \(input \d+\) is computed at run time", r"\1 computed at run time"),
        (r"TFLite's kernel does not take", "more dimensions or other types than its kernel takes"),
        (r"op operands don't have broadcast-compatible", "shapes that TFLite cannot join"),
        (r"(TFLite's \w+ does not compute on \w+)", r"\1"),
    )
)
_LONGEST = 90


def reason_of(error: Exception) -> str:
    """The causes of a refusal: "float64 at an input or output", "Unique: no lowering yet"."""
    if not isinstance(error, CannotConvertError) or not error.refusals:
        words = f"{error.what}: {error.why}" if isinstance(error, OnnxportError) else str(error)
        return _cause(words)
    # A result of a type that TFLite lacks follows from an input or a node of that type, which is said as well.
    return "; ".join(dict.fromkeys(_said(refusal) for refusal in error.refusals[:2]))


def _said(refusal: Refusal) -> str:
    if refusal.op in ("input", "output", "model"):
        return _cause(refusal.why)
    return f"{refusal.op}: {_cause(refusal.why)}"


def _cause(why: str) -> str:
    for pattern, cause in _CAUSES:
        if found := pattern.search(why):
            return found.expand(cause)
    plain = re.sub(r"\s*'[^']*'|\s*\"[^\"]*\"", "", " ".join(why.split()))
    return plain.partition(";")[0][:_LONGEST]
