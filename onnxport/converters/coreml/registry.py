"""The registry of the lowerings in `ops/`, and the ops that can have none."""

from __future__ import annotations

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import Registry

_STRINGS = "Core ML has no string operators; cut the model around it and do this step outside"
_SEQUENCES = "Core ML's programs have tensors only, no sequences or optional values"
_RANDOM = "draws random numbers, which no two runtimes draw alike; feed them to the model as an input"

# ONNX op -> why MIL cannot express it.
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
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split(), _RANDOM
    ),
    "ImageDecoder": "Core ML has no image codecs for tensors; decode outside the model",
}

REGISTRY: Registry[Value, MilBuilder] = Registry("Core ML", _IMPOSSIBLE)
lower = REGISTRY.lower
