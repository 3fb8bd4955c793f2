"""The registry of the lowerings in `ops/`, and the ops that can have none."""

from __future__ import annotations

from onnxport.converters.lowering import Registry
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.values import Value

_STRINGS = "TFLite has no string operators; cut the model around it and do this step outside"
_SEQUENCES = "TFLite has tensors only, no sequences or optional values"

# ONNX op -> why TFLite's builtin operators cannot express it.
_IMPOSSIBLE = {
    **dict.fromkeys("RegexFullMatch StringConcat StringNormalizer StringSplit".split(), _STRINGS),
    **dict.fromkeys(
        (
            "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct "
            "SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence"
        ).split(),
        _SEQUENCES,
    ),
    **dict.fromkeys(
        "Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split(),
        "draws random numbers, which no two runtimes draw alike; feed them to the model as an input",
    ),
    "MelWeightMatrix": "its bins are whole parts of float64 numbers; make all its operands constants of the model",
    "Det": "TFLite needs to know the size of the matrices, of 32 rows at most; use --shape NAME=...",
    "ImageDecoder": "TFLite has no image codecs; decode outside the model",
}

REGISTRY: Registry[Value, TflBuilder] = Registry("TFLite", _IMPOSSIBLE)
lower = REGISTRY.lower
