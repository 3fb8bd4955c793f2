"""The judgement on a quantized artefact as a translation of its float source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.core.arrays import Feeds
from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.formats.ort_model import load_ort
from onnxport.validate.precision import INTEGER_WEIGHTS
from onnxport.validate.report import Judgement, Precision, Verdict
from onnxport.validate.translation.proof import Proof, prove

if TYPE_CHECKING:
    from onnxport.validate.reference import Reference

# What the note on a proof that ended by an error of its own says; tests look for it.
BUG = "a bug of onnxport"
AGAINST = "the reference's nodes with quantization in them"
_AGAINST_ROUNDED = "the reference's nodes with roundings to {} in them"
PRECISIONS = frozenset[Precision](
    ("int8", "int16x8", "int8 dynamic", "int8 weights", "int4 weights", "mixed")
)
# Precision -> the float type of 16 bits that constants and values are rounded to.
ROUNDINGS: Mapping[Precision, str] = {
    "float16": "float16",
    "float16 weights": "float16",
    "bfloat16": "bfloat16",
    "bfloat16 weights": "bfloat16",
}
# The reference's precision -> those of candidates that can be the same nodes, rounded once more.
_BESIDE: Mapping[Precision, frozenset[Precision]] = {
    "float32": PRECISIONS | frozenset(ROUNDINGS),
    **dict.fromkeys(INTEGER_WEIGHTS, INTEGER_WEIGHTS | {"int8 dynamic"}),
}
# Runs of the reference whose values are compared with grids: sets of inputs, times the steps of each.
_RUNS = 16


def judge_translation(
    reference: Reference, candidate: Artifact, precision: Precision
) -> tuple[Judgement | None, str]:
    """Prove that `candidate` is the reference with quantization in it.

    Returns:
        The judgement, and a note; no judgement where this pair cannot be compared node by node.
    """
    rounding = ROUNDINGS.get(precision, "")
    if precision not in _BESIDE.get(reference.precision, ()):
        return None, ""
    why = _obstacle(reference, candidate)
    if why:
        return None, _note(why)
    assert reference.graph is not None
    sets = [each for each in reference.sets if each.is_usual]
    if not sets:
        return None, _note("there are no plain inputs to feed")
    try:
        proof = PROVERS[candidate.format](
            reference.graph,
            candidate.path,
            [*islice(chain.from_iterable(map(reference.feeds_of_steps, sets)), _RUNS)],
            # No calibration saw the states that later steps are fed.
            reference.steps == 1 and all(each.source == "samples" for each in sets),
            rounding,
        )
    except OnnxportError as error:
        return None, _note(str(error))
    except Exception as error:  # a proof that fails proves nothing, and refuses nothing
        return None, _note(f"{BUG}: {type(error).__name__}: {error}")
    found = _judgement(proof)
    if found.verdict == "not equivalent":
        return found, ""
    return found, f"checked node by node: {proof}" if found.verdict == "proven" else found.reason


def _obstacle(reference: Reference, candidate: Artifact) -> str:
    """Return why this pair cannot be compared node by node; empty for nothing."""
    if reference.graph is None or reference.artifact.format != "onnx":
        return "the reference has no ONNX graph"
    if candidate.format not in PROVERS:
        return f"this is not done for .{candidate.format} yet"
    return ""


def _prove_onnx(source: Model, path: Path, sets: Sequence[Feeds], are_samples: bool, rounding: str) -> Proof:
    return prove(source, Model.load(path), sets, are_samples=are_samples, rounding=rounding)


def _prove_ort(source: Model, path: Path, sets: Sequence[Feeds], are_samples: bool, rounding: str) -> Proof:
    return prove(source, load_ort(path), sets, are_samples=are_samples, rounding=rounding)


def _prove_tflite(
    source: Model, path: Path, sets: Sequence[Feeds], are_samples: bool, rounding: str
) -> Proof:
    # Imported here: it needs LiteRT.
    from onnxport.validate.translation.tflite.artefact import prove_tflite

    return prove_tflite(source, path, sets, are_samples=are_samples, rounding=rounding)


def _prove_mlpackage(
    source: Model, path: Path, sets: Sequence[Feeds], are_samples: bool, rounding: str
) -> Proof:
    # Imported here: it needs coremltools.
    from onnxport.validate.translation.mlpackage.artefact import prove_mlpackage

    return prove_mlpackage(source, path, sets, are_samples=are_samples, rounding=rounding)


# Format -> what proves a file of it to be its source, node for node.
PROVERS: Mapping[str, Callable[[Model, Path, Sequence[Feeds], bool, str], Proof]] = {
    "onnx": _prove_onnx,
    "ort": _prove_ort,
    "tflite": _prove_tflite,
    "coreml": _prove_mlpackage,
}


def _note(why: str) -> str:
    return f"it was not compared with the reference node by node: {' '.join(why.split())}"


def _judgement(proof: Proof) -> Judgement:
    verdict: Verdict = "proven" if proof.is_complete else "not equivalent" if proof.faults else "unproven"
    reason = proof.summary if proof.is_complete else str(proof)
    if verdict == "unproven":
        reason = f"not proven node for node: {proof}"
    against = _AGAINST_ROUNDED.format(proof.rounding) if proof.rounding else AGAINST
    return Judgement(question="translation", verdict=verdict, reason=reason, against=against)
