"""A float16 artefact whose values overflow on large generated inputs alone: it is right, and the report says from where
on it is not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

import onnxport
from onnxport.formats.artifact import Artifact
from tests.validate.models import save, verdict

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 1600] x) => (float[1, 2] y) <float[1, 2] w = {0.25, 0.5}>'
# The loudness of a waveform, in two units: 300 squared is beyond float16.
SOURCE = HEAD + "{ p = Mul(x, x) m = ReduceMean<axes=[1]>(p) r = Sqrt(m) y = MatMul(r, w) }"
HALF = (
    HEAD
    + """{ h = Cast<to=10>(x) v = Cast<to=10>(w)
    p = Mul(h, h) m = ReduceMean<axes=[1]>(p) r = Sqrt(m) q = MatMul(r, v) y = Cast<to=1>(q) }"""
)


def file(text: str, path: Path) -> Artifact:
    return save(onnx.parser.parse_model(text), path)


def overflows(notes: tuple[str, ...]) -> list[str]:
    return [note for note in notes if note.startswith("float16 overflows")]


def test_large_inputs_on_which_float16_overflows_are_told(tmp_path: Path) -> None:
    report = verdict(file(SOURCE, tmp_path / "a.onnx"), file(HALF, tmp_path / "b.onnx"))
    assert report.passed, report.reason
    (note,) = overflows(report.notes)
    assert "up to 1000, set 5 (sparse), where" in note
    assert "--inputs DIR" in note


def test_a_sum_that_float16_holds_is_not(tmp_path: Path) -> None:
    texts = [text.replace("Mul(x, x)", "Abs(x)").replace("Mul(h, h)", "Abs(h)") for text in (SOURCE, HALF)]
    report = verdict(*(file(text, tmp_path / f"{number}.onnx") for number, text in enumerate(texts)))
    assert report.passed, report.reason
    assert not overflows(report.notes)


def test_pictures_are_never_so_large(tmp_path: Path) -> None:
    shapes = {"[1, 1600]": "[1, 3, 24, 24]", "[1, 2] y": "[1, 1, 1, 2] y", "axes=[1]": "axes=[1, 2, 3]"}
    texts = [SOURCE, HALF]
    for old, new in shapes.items():
        texts = [text.replace(old, new) for text in texts]
    report = verdict(*(file(text, tmp_path / f"{number}.onnx") for number, text in enumerate(texts)))
    assert report.passed, report.reason
    assert not overflows(report.notes)


def test_with_samples_of_that_size_what_overflows_stays_float32(tmp_path: Path) -> None:
    source, random = file(SOURCE, tmp_path / "a.onnx"), np.random.default_rng(0)
    for number in range(3):
        audio = random.uniform(-32768, 32767, (1, 1600)).astype(np.float32)
        np.save(tmp_path / f"{number}.npy", audio)
    made = onnxport.quantize_model(source.path, "fp16", tmp_path / "b.onnx", inputs=tmp_path, latency=False)
    assert made.report.passed
    assert not overflows(made.report.notes)
    operators = [node.op_type for node in onnx.load(tmp_path / "b.onnx").graph.node]
    assert operators == ["Mul", "ReduceMean", "Sqrt", "Cast", "MatMul", "Cast"]
