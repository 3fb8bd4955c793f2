"""What rooms say of options is said of keys where a pipeline.yaml is read."""

from __future__ import annotations

import pytest

from onnxport.reports.pipeline.option_keys import spell_as_keys


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "only generated inputs were fed; --inputs DIR takes your own",
            "only generated inputs were fed; inputs: DIR takes your own",
        ),
        ("give --shape for the input, or --no-simplify", "give shape for the input, or simplify: false"),
        ("take it with --accept-inconclusive", "take it with accept_inconclusive"),
        ("--int8 needs --calib DIR, --dynamic does not", "int8 needs calib: DIR, dynamic does not"),
        ("build it with --include_ops_by_config FILE", "build it with --include_ops_by_config FILE"),
        ("or run with --no-cache", "or run with --no-cache"),
        ("run: pip install --upgrade onnx", "run: pip install --upgrade onnx"),
    ],
)
def test_options_that_are_keys_are_named_so_and_no_others(said: str, told: str) -> None:
    assert spell_as_keys(said) == told
