"""Indices that come as floats, as Keras feeds an Embedding: whole numbers, which no probe rounds to another row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.samples.domain import domains
from tests.validate.models import parsed, save, verdict

# DeepCut's first layers: a Cast, a lookup in 178 rows, a dense layer.
TEXT = """g (float[N, 21] x) => (float[N, 1] y) <int64[2] flat = {0, -1}>
    { i = Cast <to = 6> (x) e = Gather (t, i) f = Reshape (e, flat) s = MatMul (f, w) y = Sigmoid (s) }"""


def network(path: Path, wrong: slice | None = None) -> Artifact:
    """Write the network; `wrong` rows of its table are others."""
    random = np.random.default_rng(5)
    table = random.standard_normal((178, 8)).astype(np.float32)
    if wrong is not None:
        table[wrong] *= 1.5
    model = parsed(TEXT)
    weights = {"t": table, "w": random.standard_normal((168, 1)).astype(np.float32) * 0.1}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in weights.items())
    return save(model, path)


def test_floats_that_are_cast_to_an_index_are_whole_numbers_of_its_range(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx").path
    domain = domains(Model.load(path))["x"]
    assert (domain.kind, domain.low, domain.high) == ("integer", 0, 177)
    other = onnx.load(path)
    other.graph.node.append(onnx.helper.make_node("Neg", ["x"], ["n"]))
    other.graph.output.append(onnx.helper.make_tensor_value_info("n", 1, ["N", 21]))
    assert domains(Model.load(save(other, tmp_path / "other.onnx").path))["x"].kind == "real"


def test_rows_of_the_whole_table_are_looked_up(tmp_path: Path) -> None:
    right = network(tmp_path / "right.onnx")
    assert verdict(right, right).verdict == "proven"
    for begin in (3, 90, 160):
        wrong = network(tmp_path / f"{begin}.onnx", slice(begin, begin + 9))
        assert verdict(right, wrong).verdict == "not equivalent"


def test_the_users_indices_are_no_noise(tmp_path: Path) -> None:
    right, wrong = network(tmp_path / "right.onnx"), network(tmp_path / "wrong.onnx", slice(90, 99))
    (tmp_path / "in").mkdir()
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 178, (5, 21)).astype(np.float32)
        np.savez(tmp_path / "in" / f"{seed}.npz", x=x)
    assert verdict(right, right, inputs=tmp_path / "in").verdict == "proven"
    assert verdict(right, wrong, inputs=tmp_path / "in").verdict == "not equivalent"
    np.savez(tmp_path / "one.npz", x=np.full((1, 21), 7, np.float32))
    assert verdict(right, right, inputs=tmp_path / "one.npz").verdict == "proven", "its neighbours are whole"
