"""The search for sizes has a time, after which it says what it needs."""

from __future__ import annotations

import time
from pathlib import Path

import onnx
import pytest

from onnxport.core.errors import NoSizesError
from onnxport.formats.artifact import Artifact
from onnxport.validate import size_search
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams

# A loop of so many steps that no run ends within the time of this test.
SLOW = """g (float[1, length] x) => (float[1, length] y) <int64 steps = {2000000000}, bool go = {1}> {
    y = Loop (steps, go, x) <body = b (int64 i, bool c, float[1, length] s) => (bool d, float[1, length] t) {
        d = Identity(c)  t = Sin(s) }> }"""
# Runs at no size: what is added has 5 elements, which inference does not know, and no proposal has as many.
NEVER = """g (float[1, length] x) => (float[m] y) <float[5] five = {1, 1, 1, 1, 1}, int64[1] flat = {-1}> {
    k = NonZero(five)  f = Reshape(k, flat)  g = Cast<to = 1>(f)  r = Reshape(x, flat)  w = Concat<axis = 0>(r, r)
    y = Add(w, g) }"""


def saved(text: str, path: Path) -> Artifact:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}'), path)
    return Artifact.open(path)


def test_a_run_that_does_not_end_ends_the_search_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size_search, "SECONDS", 4.0)
    told: list[tuple[str, int, int]] = []
    model = saved(SLOW, tmp_path / "m.onnx")
    began = time.monotonic()
    with (
        pytest.raises(NoSizesError, match=r"which is the time for it .4 s") as caught,
        Judge(model, ValidateParams(), tell=lambda *how_far: told.append(how_far)) as judge,
    ):
        _ = judge.reference
    assert time.monotonic() - began < 15
    assert "input 'x'" in caught.value.what
    assert "1 size was tried in 4 s" in caught.value.why
    assert "--shape x=1,SIZE" in caught.value.fix
    assert told == [("searching sizes, second", 4, 4)]


def test_a_size_of_the_user_s_is_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run at the size that was given may take as long as --timeout says."""
    monkeypatch.setattr(size_search, "SECONDS", 0.0)
    text = SLOW.replace("2000000000", "300000")
    model = saved(text, tmp_path / "m.onnx")
    params = ValidateParams.model_validate({"shape": {"x": "1,3"}, "samples": 1})
    with Judge(model, params) as judge:
        _ = judge.reference
        assert judge.reference.sets


def test_how_many_sizes_were_tried_is_said(tmp_path: Path) -> None:
    model = saved(NEVER, tmp_path / "m.onnx")
    with (
        pytest.raises(NoSizesError, match=r"1\d sizes were tried in \d+ s; the last try: Add") as caught,
        Judge(model, ValidateParams()) as judge,
    ):
        _ = judge.reference
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("size", "seconds"), [(1_000_000, 60.0), (50_000_000, 60.0), (500_000_000, 600.0)])
def test_a_large_model_has_more_time(size: int, seconds: float) -> None:
    assert size_search.patience(size) == seconds


def test_a_long_proof_says_which_input_set_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxport.validate.progress.SILENT", 0.0)
    told: list[tuple[str, int, int]] = []
    model = saved("g (float[N, 4] x) => (float[N, 4] y) { y = Sin (x) }", tmp_path / "m.onnx")
    with Judge(model, ValidateParams(), tell=lambda *how_far: told.append(how_far)) as judge:
        judge.verdict(model)
    for who in ("reference", "candidate"):
        counts = [(done, total) for what, done, total in told if what == f"running the {who}, input set"]
        assert len(counts) == len(judge.reference.sets)
        assert all(done <= total for done, total in counts)
