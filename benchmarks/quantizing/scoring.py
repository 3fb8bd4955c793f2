"""The judge of all tools: ONNX Runtime's outputs of the quantized file against those of the float one, in NumPy.

It does not use onnxport. An output's SQNR is 10 log10 of the energy of the float outputs over that of the error, over
all samples together; a model's is the mean over its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

Array = np.ndarray[Any, np.dtype[Any]]
Answers = Sequence[Sequence[Array]]  # of each sample the outputs

_BEST = 120.0  # dB: beyond it answers are the same


@dataclass(frozen=True)
class Score:
    """The accuracy of a file against its float original.

    Attributes:
        sqnr: in dB, the mean over outputs.
        worst: of the worst output.
        agreement: the share of rows of all outputs whose largest element is the same one.
        lost: points of accuracy that the float model had more; of labelled samples only.
        said: what went wrong; empty when nothing did.
    """

    sqnr: float = math.nan
    worst: float = math.nan
    agreement: float = math.nan
    lost: float | None = None
    said: str = ""


def answers(model: Path, samples: Sequence[Path]) -> Answers:
    """Return the model's outputs on the samples, in their order."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # As ONNX defines it: the CPU's own integer kernels saturate on x86 without VNNI.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    taken = {value.name for value in session.get_inputs()}
    found = []
    for path in samples:
        with np.load(path) as arrays:
            found.append(session.run(None, {name: arrays[name] for name in arrays.files if name in taken}))
    return found


def score(
    candidate: Path, reference: Answers, samples: Sequence[Path], labels: Sequence[int] | None = None
) -> Score:
    """The score of a file; one that does not run has none."""
    try:
        made = answers(candidate, samples)
    except Exception as error:  # ONNX Runtime's have no common class
        return Score(said=f"does not run: {str(error).splitlines()[0][:120]}")
    outputs = range(len(reference[0]))
    sqnrs = [_sqnr([row[i] for row in reference], [row[i] for row in made]) for i in outputs]
    same = [
        np.argmax(right[i], -1) == np.argmax(mine[i], -1)
        for right, mine in zip(reference, made, strict=True)
        for i in outputs
    ]
    agreement = float(np.mean(np.concatenate([each.ravel() for each in same])))
    lost = 100 * (_accuracy(reference, labels) - _accuracy(made, labels)) if labels else None
    return Score(float(np.mean(sqnrs)), float(np.min(sqnrs)), agreement, lost)


def _accuracy(found: Answers, labels: Sequence[int]) -> float:
    """The share of samples whose first output's largest element is the label."""
    return float(np.mean([np.argmax(each[0]) == label for each, label in zip(found, labels, strict=True)]))


def _sqnr(reference: Sequence[Array], made: Sequence[Array]) -> float:
    signal = sum(float(np.sum(np.square(each, dtype=np.float64))) for each in reference)
    noise = sum(
        float(np.sum(np.square(mine.astype(np.float64) - right)))
        for right, mine in zip(reference, made, strict=True)
    )
    if not math.isfinite(noise):
        return -_BEST
    return min(_BEST, 10 * math.log10(signal / noise)) if noise and signal else _BEST
