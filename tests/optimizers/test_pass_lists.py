"""Lists of passes: the levels, the user's own, other tools as passes, and a culprit that is left out."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnxport.core.errors import MissingDependencyError, UsageError
from onnxport.formats.model import Model
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.simplification import pass_lists, simplify
from onnxport.optimizers.simplification.graph import PASSES
from tests.optimizers.simplified import answers, check, grown_by_folding, model_of, ops, simple
from tests.optimizers.test_simplification import ALONE, SMALLER


def test_the_extended_level_writes_operators_of_onnx_runtime(tmp_path: Path) -> None:
    text = (
        "g (float[N,4] x) => (float[N,4] y) <float root = {1.41421356}, float one = {1.0}, float half = {0.5}> "
        "{ a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half) }"
    )
    made = check(text, {"Gelu": 1}, tmp_path, level="extended")
    assert next(iter(made.model.graph)).domain == "com.microsoft"
    check(text, {"Div": 1, "Erf": 1, "Add": 1, "Mul": 2}, tmp_path)


def test_onnxsim_is_a_pass_that_a_list_may_name(tmp_path: Path) -> None:
    own = tmp_path / "passes.yaml"
    own.write_text("- onnxsim\n", encoding="utf-8")
    text = "g (float[N,4] x) => (float[N,4] y) { a = Identity(x) b = Identity(a) y = Relu(b) }"
    if importlib.util.find_spec("onnxsim") is None:
        with pytest.raises(MissingDependencyError, match="pip install onnxsim"):
            simple(model_of(text), tmp_path, passes=own)
        return
    made = check(text, {"Relu": 1}, tmp_path, passes=own)
    assert [row["pass"] for row in made.facts["passes"]] == ["onnxsim"]


def test_a_tool_that_fails_is_noted_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "site"
    broken.mkdir()
    (broken / "onnxsim.py").write_text("raise RuntimeError('built for another machine')")
    monkeypatch.syspath_prepend(str(broken))
    monkeypatch.setenv("PYTHONPATH", str(broken), prepend=os.pathsep)
    own = tmp_path / "passes.yaml"
    own.write_text("- onnxsim\n", encoding="utf-8")
    text = "g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }"
    made = simple(model_of(text), tmp_path, passes=own)
    assert made.notes == ("pass 'onnxsim' did nothing: RuntimeError: built for another machine",)
    assert ops(made.model) == {"Relu": 1}


def test_a_tool_is_not_given_a_quantized_model(tmp_path: Path) -> None:
    own = tmp_path / "passes.yaml"
    own.write_text("- onnxruntime-basic\n", encoding="utf-8")
    text = ALONE["quantized weights"].replace("y = MatMul(x, w)", "a = Identity(x) y = MatMul(a, w)")
    made = check(text, {"Identity": 1, "DequantizeLinear": 1, "MatMul": 1}, tmp_path, passes=own)
    assert made.notes == (
        "pass 'onnxruntime-basic' was skipped: it would move the Q and DQ of this quantized model",
    )


def test_a_model_that_grows_too_large_is_simplified_without_the_pass_that_added_most(tmp_path: Path) -> None:
    """Eight reshaped sums of one weight: each would be a weight of its own."""
    weight = np.random.default_rng(0).normal(size=(64, 64, 3)).astype(np.float32)
    shifts = [ir.tensor(np.full((64, 64, 3), 1.0 + each, np.float32)[:1, :1, :1]) for each in range(12)]
    model = grown_by_folding(weight, shifts)
    made = simple(model, tmp_path)
    assert ops(made.model) == ops(model)
    (note,) = made.notes
    assert note.startswith("pass 'fold-constants' was skipped: it adds 540,")
    for before, after in zip(answers(model), answers(made.model), strict=True):
        np.testing.assert_array_equal(after, before)


def test_the_table_in_the_docs_states_each_pass_rules() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "optimize.md").read_text(encoding="utf-8")
    for each in PASSES.values():
        keeps = each.keeps or "—"
        assert f"| `{each.name}` | {each.rules} | {keeps} |" in page, each.name


def test_a_culprit_is_named_and_the_other_passes_stay(tmp_path: Path) -> None:
    """The check refuses every model with a Gemm."""
    text, _ = SMALLER["a matrix product and its bias"]
    model = model_of(text.replace("y = Add(b, a)", "c = Identity(a) y = Add(b, c)"))
    asked = []

    def equivalence(candidate: Model) -> str | None:
        asked.append(ops(candidate))
        return "it is off by one" if "Gemm" in ops(candidate) else None

    made = simplify(model, OptimizeParams(), tmp_path, equivalence=equivalence)
    assert ops(made.model) == {"MatMul": 1, "Add": 1}
    assert {"Gemm": 1} in asked
    assert made.notes == ("pass 'fuse-gemm' was skipped: it changes the model's answers: it is off by one",)
    assert made.facts["passes"][-1] == {
        "pass": "fuse-gemm",
        "skipped": "it changes the model's answers: it is off by one",
    }
    (dropped,) = (row for row in made.facts["passes"] if row["pass"] == "drop-no-ops")
    assert dropped["nodes"] == [3, 2]


def test_an_unchanged_model_is_not_checked(tmp_path: Path) -> None:
    model = model_of("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    asked = []
    simplify(model, OptimizeParams(), tmp_path, equivalence=lambda candidate: asked.append(candidate))
    assert not asked


def test_a_large_constant_is_not_written_out(tmp_path: Path) -> None:
    text = (
        "g (float[300,300] x) => (float[300,300] y) <float one = {1.5}, int64[2] s = {300, 300}> "
        "{ a = Expand(one, s) y = Mul(x, a) }"
    )
    check(text, {"Expand": 1, "Mul": 1}, tmp_path)


def test_a_list_of_the_users_own_passes(tmp_path: Path) -> None:
    text = "g (float[N,4] x) => (float[N,4] y) { a = Identity(x) b = Exp(a) c = Exp(a) y = Mul(b, c) }"
    own = tmp_path / "passes.yaml"
    own.write_text("- share-subexpressions\n- remove-unused\n", encoding="utf-8")
    check(text, {"Identity": 1, "Exp": 1, "Mul": 1}, tmp_path, passes=own)
    check(text, {"Exp": 2, "Mul": 1}, tmp_path, skip="share-subexpressions")


def test_an_unknown_pass_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    model = model_of("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    with pytest.raises(UsageError, match=r"'drop-noops'.*did you mean 'drop-no-ops'"):
        simple(model, tmp_path, skip="drop-noops")
    own = tmp_path / "passes.yaml"
    own.write_text("passes: drop-no-ops\n", encoding="utf-8")
    with pytest.raises(UsageError, match="not a list of passes"):
        simple(model, tmp_path, passes=own)


def test_every_level_names_existing_passes() -> None:
    assert set(pass_lists.levels()) == {"basic", "extended", "ort-all"}
    assert {name for names in pass_lists.levels().values() for name in names} <= set(PASSES)
