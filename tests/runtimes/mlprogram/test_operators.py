"""The evaluator knows every operator that coremltools registers, with every parameter, up to the newest opset."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxport.runtimes.mlprogram.kernels.registry import KERNELS, Undefined
from tests.runtimes.mlprogram.programs import builder, target, write

# Constants are read with the program; the other exists while coremltools converts only.
NO_KERNEL = {"const", "_const_symbolic"}


def registered() -> dict[str, dict[Any, Any]]:
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    return dict(SSAOpRegistry.core_ops)


def test_every_operator_has_a_kernel() -> None:
    assert registered().keys() - KERNELS.keys() == NO_KERNEL
    # coreml_update_state is written as these two.
    assert {"read_state", "write_state"} <= KERNELS.keys()


@pytest.mark.parametrize("operator", sorted(registered().keys() - NO_KERNEL))
def test_a_kernel_takes_every_parameter_of_every_version(operator: str) -> None:
    taken = inspect.signature(KERNELS[operator]).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken):
        return
    for version in registered()[operator].values():
        parameters = version.input_spec.input_types
        wanted = {name for name in parameters if not name.startswith("_")}  # functions are blocks in a file
        assert wanted <= {each.name for each in taken}
        required = {each.name for each in taken if each.default is inspect.Parameter.empty} - {"call"}
        optional = {name for name, type_ in parameters.items() if type_.optional}
        assert not required & optional, "a file may leave these out"


def test_the_newest_opset(tmp_path: Path) -> None:
    import coremltools

    newest = max(coremltools.target, key=lambda each: each.value).name
    x = np.arange(3, dtype=np.float32)

    def build(x: Any, at: Any) -> list[Any]:
        return [builder().gather(x=builder().relu(x=x), indices=at, axis=0)]

    written = write(tmp_path, {"x": x, "at": np.array([2, 0], np.int32)}, build, newest)
    (found,) = written.run()
    np.testing.assert_array_equal(found, [2, 0])
    with pytest.raises(Undefined, match="index -1"):
        written.evaluator().run({"x": x, "at": np.array([-1, 0], np.int32)})
    assert target(newest).value >= target("iOS18").value
