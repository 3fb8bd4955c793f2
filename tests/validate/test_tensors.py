"""The tensors beside a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.params import params_of
from onnxport.validate import tensor_dump
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from onnxport.validate.tensor_dump import Tensors

X = {"x": np.ones((1, 2), np.float32)}


def saved(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


SOURCE = "y = Mul (x, one) z = Add (y, y)"
# y is 9 off where x is 9, z is 0.9 off everywhere.
OFF = "a = Greater (x, five) b = Where (a, x, nought) y = Add (x, b) c = Add (x, x) z = Add (c, small)"


def proto(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 17]> g (float[1, 4] x) => (float[1, 4] y, float[1, 4] z)
        <float one = {{1.0}}, float small = {{0.9}}, float five = {{5.0}}, float nought = {{0.0}}> {{ {body} }}"""
    )


def test_file_holds_the_set_that_the_verdict_speaks_of(tmp_path: Path) -> None:
    """With an atol of 1 only y is wrong, and only where x is 9; z is off by a larger share of its scale elsewhere."""
    path = tmp_path / "t.npz"
    source, broken = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(proto(SOURCE), source)
    onnx.save(proto(OFF), broken)
    folder = tmp_path / "in"
    folder.mkdir()
    for name, values in (
        ("a", [1e-3, 1, 1, 9]),
        ("b", [2e-3, 1e-3, -1e-3, 2e-3]),
    ):
        np.savez(folder / f"{name}.npz", x=np.float32([values]))
    with Judge(Artifact.open(source), ValidateParams(inputs=folder, report_tensors=path, atol=1.0)) as judge:
        report = judge.verdict(Artifact.open(broken))
    assert report.telling is not None
    assert [output.verdict for output in report.outputs] == ["not equivalent", "proven"]
    worst = report.telling.worst
    assert worst is not None
    found = saved(path)
    assert str(found["set"]) == worst.input_set
    assert found[f"reference/{report.telling.name}"][worst.index] == worst.reference
    assert found[f"candidate/{report.telling.name}"][worst.index] == worst.candidate
    assert f"the tensors of {worst.input_set} are in {path}" in report.notes


def test_what_does_not_fit_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_dump, "CAP", 2_000_000)
    big, small = np.zeros(400_000, np.float32), np.zeros(10, np.float32)
    kept = Tensors("set 1", X, {"big": big, "small": small}, {"big": big, "small": small + 1})
    note = kept.save(tmp_path / "t.npz")
    assert note.endswith("; 2 arrays did not fit into 2 MB")
    assert set(saved(tmp_path / "t.npz")) == {"set", "input/x", "reference/small", "candidate/small"}


def test_names_do_not_lead_out_of_a_folder(tmp_path: Path) -> None:
    kept = Tensors("set 1", {}, {"../../etc/y": np.zeros(1)}, {"../../etc/y": np.ones(1)})
    kept.save(tmp_path / "t.npz")
    assert not any(".." in name for name in saved(tmp_path / "t.npz"))


def test_strings_need_no_pickle(tmp_path: Path) -> None:
    kept = Tensors("set 1", {}, {"y": np.array(["a", "é"], object)}, {"y": np.array(["a", "b"], object)})
    kept.save(tmp_path / "t.npz")
    assert saved(tmp_path / "t.npz")["reference/y"].tolist() == ["a", "é"]


def test_other_suffix_is_refused_before_the_work() -> None:
    with pytest.raises(UsageError, match=r"give a file that ends in \.npz"):
        params_of(ValidateParams, {"report_tensors": "t.json"}, purpose="validation")
