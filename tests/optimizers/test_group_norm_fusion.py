"""GroupNormalization as PyTorch's exporters write it: InstanceNormalization of [N, groups, rest]."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxport.formats.model import Model
from onnxport.optimizers.group_norm_fusion import fuse_group_norms
from onnxport.optimizers.shape_inference import infer
from tests.optimizers.rewritten import run

IMAGE = np.random.default_rng(3).standard_normal((2, 6, 4, 5)).astype(np.float32) + 2
TEXT = """<ir_version: 8, opset_import: ["" : 21]> g (float[{sizes}] x) => (float[{result}] y {more})
<float[3] scale = {{1.5, -2.0, 0.5}}, float[3] bias = {{0.0, 1.0, -3.0}},
 int64[3] to = {{{to}}}, int64[4] back = {{{back}}}> {{
    grouped = Reshape (x, to)
    norm = InstanceNormalization <epsilon = 0.01> (grouped, scale, bias)
    y = Reshape (norm, back)
}}"""


def written(
    path: Path, to: str, back: str, *, sizes: str = "2, 6, 4, 5", result: str = "", more: str = ""
) -> Path:
    """Return the pattern with 3 groups; `more` names further outputs."""
    text = TEXT.format(sizes=sizes, result=result or sizes, to=to, back=back, more=more)
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.mark.parametrize(
    ("to", "back", "sizes"),
    [
        ("0, 3, -1", "2, 6, 4, 5", "2, 6, 4, 5"),
        ("2, 3, 40", "0, 6, 4, 5", "2, 6, 4, 5"),
        ("0, 3, -1", "-1, 6, 4, 5", "N, 6, 4, 5"),
    ],
)
def test_the_pattern_becomes_one_node(tmp_path: Path, to: str, back: str, sizes: str) -> None:
    path = written(tmp_path / "m.onnx", to, back, sizes=sizes)
    model = Model.load(path)
    infer(model)
    assert fuse_group_norms(model) == 1
    assert [node.op_type for node in model.graph] == ["GroupNormalization"]
    after, before = run(model, {"x": IMAGE})[0], run(Model.load(path), {"x": IMAGE})[0]
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("to", "back", "result", "more"),
    [
        ("1, 3, -1", "2, 6, 4, 5", "2, 6, 4, 5", ""),  # over the whole batch
        ("0, 3, -1", "2, 4, 6, 5", "2, 4, 6, 5", ""),  # other channels
        ("0, 3, -1", "2, 6, 4, 5", "2, 6, 4, 5", ", float[2, 3, 40] norm"),  # the groups are an output
    ],
)
def test_what_is_no_group_normalization_stays(
    tmp_path: Path, to: str, back: str, result: str, more: str
) -> None:
    model = Model.load(written(tmp_path / "m.onnx", to, back, result=result, more=more))
    infer(model)
    assert fuse_group_norms(model) == 0
