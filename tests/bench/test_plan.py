"""Rows are every artefact under all settings that its runtime has, each once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onnxport.bench.params import BenchParams
from onnxport.bench.plan import plan_rows
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import FORMATS, Artifact


def rows(*names: str, **options: object) -> list[tuple[object, ...]]:
    artifacts = [Artifact(Path(name), FORMATS[Path(name).suffix]) for name in names]
    plans = plan_rows(artifacts, BenchParams.model_validate(options))
    settings = [plan.settings for plan in plans]
    return [
        (plan.artifact.path.name, each.provider, each.threads, each.level, each.batch)
        for plan, each in zip(plans, settings, strict=True)
    ]


def test_a_runtime_has_its_own_defaults_and_only_what_it_knows() -> None:
    assert rows("m.onnx", "m.ort", "m.tflite", levels="disable,all") == [
        ("m.onnx", "cpu", 2, "disable", None),
        ("m.onnx", "cpu", 2, "all", None),
        ("m.ort", "cpu", 2, None, None),
        ("m.tflite", "xnnpack", 2, None, None),
    ]


def test_lists_may_be_written_with_commas_repeated_or_in_python() -> None:
    expected = [("m.tflite", p, t, None, b) for p in ("xnnpack", "cpu") for t in (1, 2) for b in (1, 8)]
    for threads, batch in (("1,2", "1,8"), (("1", "2"), ("1,8",)), ((1, 2), [1, 8, 1])):
        assert rows("m.tflite", providers="XNNPACK,cpu", threads=threads, batch=batch) == expected


def test_an_artefact_is_run_by_those_of_the_providers_that_it_can_have() -> None:
    assert [row[:2] for row in rows("m.onnx", "m.tflite", "m.tflite", providers="cuda,xnnpack")] == [
        ("m.onnx", "cuda"),
        ("m.onnx", "xnnpack"),
        ("m.tflite", "xnnpack"),
    ]


def test_one_that_can_have_none_of_them_is_listed_and_fails_nothing() -> None:
    artifacts = [Artifact(Path("m.tflite"), "tflite")]
    (row,) = plan_rows(artifacts, BenchParams.model_validate({"providers": "cuda"}))
    assert row.failure is not None
    assert row.failure.status == "not here"
    assert "LiteRT has no provider cuda" in str(row.failure.error)


@pytest.mark.skipif(sys.platform == "darwin", reason="there Core ML is here")
def test_core_ml_is_not_tried_off_macos() -> None:
    (row,) = plan_rows([Artifact(Path("m.mlpackage"), "coreml")], BenchParams())
    assert row.failure is not None
    assert "run this command on macOS" in str(row.failure.error)


def test_a_provider_that_no_runtime_has_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="no runtime has a provider 'cdua'; did you mean 'cuda'"):
        rows("m.onnx", providers="cdua")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"threads": "0"}, "--threads: '0' is not allowed; give numbers from 1 to 256"),
        ({"threads": (1, 2.5)}, "--threads: '2.5' is not allowed"),
        ({"batch": "1,,8"}, "--batch: '' is not allowed"),
        ({"levels": "al"}, "--levels: 'al' is not allowed; give some of disable, basic, extended, all"),
        ({"preprocess": "resize=32"}, "--preprocess is for images in --inputs"),
    ],
)
def test_an_invalid_value_is_named(options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        BenchParams.model_validate(options)
    assert says in str(caught.value)
