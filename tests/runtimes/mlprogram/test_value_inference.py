"""What coremltools computes of an operator on constants, by its value_inference, the evaluator computes as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from tests.runtimes.mlprogram import cases_indices, cases_layout, cases_nets, cases_numbers  # noqa: F401 - fill CASES
from tests.runtimes.mlprogram.draws import CASES
from tests.runtimes.mlprogram.programs import apple, evaluated

COUNT = 20
OPSETS = ("iOS15", "iOS16", "iOS17", "iOS18")

# Where a fraction is cut off integers, as Apple's value_inference does; what a device does is not documented, so
# that strict mode raises.
FRACTIONS = ("reduce_mean", "reduce_l2_norm", "reduce_log_sum", "reduce_log_sum_exp")

# Operators that coremltools computes, and why they are not compared here.
EXEMPT = {
    "_const_symbolic": "coremltools' own, never in a file",
    "const": "no operator that computes",
    "cond": "has blocks: test_control_flow.py",
    "list_length": "lists: test_lists.py",
    "reverse_sequence": "its value_inference raises NotImplementedError",
}


def versions() -> list[tuple[str, str]]:
    """Each operator in each opset that brings a new version of it."""
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    from tests.runtimes.mlprogram.programs import target

    found = []
    for operator in sorted(CASES):
        known = {each.value: made for each, made in SSAOpRegistry.core_ops[operator].items()}
        seen: set[Any] = set()
        for opset in OPSETS:
            made = known.get(target(opset).value)
            if made is not None and made not in seen:
                seen.add(made)
                found.append((operator, opset))
    return found


@pytest.mark.parametrize(("operator", "opset"), versions())
def test_agrees_with_apple(operator: str, opset: str, tmp_path: Path) -> None:
    random = np.random.default_rng(crc32(f"{operator}{opset}".encode()))
    cases = [CASES[operator](random, int(opset.removeprefix("iOS"))) for _ in range(COUNT)]
    expected = [apple(operator, arguments, opset) for arguments in cases]
    found = evaluated(tmp_path, operator, cases, opset, strict=operator not in FRACTIONS)
    for arguments, wanted, given in zip(cases, expected, found, strict=True):
        for each, other in zip(wanted, given, strict=True):
            _assert_agree(other, each, f"{operator} of {arguments}")


def _assert_agree(found: Any, expected: Any, what: str) -> None:
    assert found.shape == expected.shape, what
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected, what)
        return
    # Apple rounds inside an operator as well, the evaluator after it.
    half = "float16" in (found.dtype.name, expected.dtype.name)
    digits, least = (4e-3, 0.25) if half else (2e-6, 0.05)
    wide = expected.astype(np.float64)
    scale = float(np.max(np.abs(wide[np.isfinite(wide)]), initial=least))
    np.testing.assert_allclose(found.astype(np.float64), wide, digits, digits * scale, err_msg=what)


def test_every_operator_that_apple_computes_is_compared() -> None:
    from coremltools.converters.mil.mil import Operation
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    computes = {
        name
        for name, known in SSAOpRegistry.core_ops.items()
        if any(made.value_inference is not Operation.value_inference for made in known.values())
    }
    assert computes - CASES.keys() - EXEMPT.keys() == set()
