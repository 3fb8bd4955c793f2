"""Which of ONNX's node tests ONNX Runtime itself passes: nobody can be held to an answer that the reference misses.

    python -m tests.conformance.onnxruntime            # what it passes, and why not the others
    python -m tests.conformance.onnxruntime --write    # renews onnxruntime_right.txt

Sequences, optionals, strings and element types narrower than a byte are fed and compared as well.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime

from tests.conformance.tflite import cases, difference

RIGHT = Path(__file__).with_name("onnxruntime_right.txt")

# A value of ONNX Runtime's type "seq(...)" or "optional(...)" is stored as another message than a tensor's.
_MESSAGES = {
    "seq(": (onnx.SequenceProto, onnx.numpy_helper.to_list),
    "optional(": (onnx.OptionalProto, onnx.numpy_helper.to_optional),
}


def failure(case: Path) -> str:
    """Why ONNX Runtime does not pass the case; empty if it does."""
    try:
        session = onnxruntime.InferenceSession(case / "model.onnx", providers=["CPUExecutionProvider"])
        for data_set in sorted(case.glob("test_data_set_*")):
            expected = [_stored(data_set, "output", i, port) for i, port in enumerate(session.get_outputs())]
            for wanted, given in zip(expected, answers(session, data_set), strict=True):
                if not is_same(wanted, given):
                    return "differs from the stored answer"
    except Exception as error:
        return " ".join(str(error).split())[:160] or type(error).__name__
    return ""


def answers(session: onnxruntime.InferenceSession, data_set: Path) -> list[Any]:
    ports = session.get_inputs()
    feeds = {port.name: _stored(data_set, "input", i, port) for i, port in enumerate(ports)}
    if not any(_is_small(port.type) for port in (*ports, *session.get_outputs())):
        return list(session.run(None, feeds))
    binding = session.io_binding()
    for i, port in enumerate(ports):
        binding.bind_ortvalue_input(port.name, _ort_value(data_set / f"input_{i}.pb", feeds[port.name]))
    for port in session.get_outputs():
        binding.bind_output(port.name)
    session.run_with_iobinding(binding)
    return [value.numpy() for value in binding.get_outputs()]


def _ort_value(file: Path, value: Any) -> Any:
    """The stored tensor under its ONNX type, which NumPy's cannot tell ONNX Runtime for bfloat16 and smaller ones."""
    tensor = onnx.TensorProto.FromString(file.read_bytes())
    if value.dtype == object:
        return onnxruntime.OrtValue.ortvalue_from_numpy(value)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(value, tensor.data_type)


def _is_small(type_: str) -> bool:
    return any(name in type_ for name in ("float8", "float4", "bfloat16", "int4", "int2"))


def _stored(data_set: Path, kind: str, index: int, port: Any) -> Any:
    """The value in a file of the data set: an array, a list of values, or None for an optional without one."""
    content = (data_set / f"{kind}_{index}.pb").read_bytes()
    for prefix, (message, converted) in _MESSAGES.items():
        if port.type.startswith(prefix):
            return converted(message.FromString(content))
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(content))


def is_same(expected: Any, given: Any) -> bool:
    if expected is None:
        return given is None
    if isinstance(expected, list):
        return len(expected) == len(given) and all(map(is_same, expected, given))
    given = np.asarray(given)
    if expected.dtype.kind == "V" and expected.dtype.itemsize == given.dtype.itemsize:
        given = given.view(expected.dtype)  # ONNX Runtime gives the bits of types that NumPy lacks
    return not difference(expected, given)


def main(arguments: Sequence[str]) -> None:
    """Runs every node test and prints those that ONNX Runtime does not pass."""
    onnxruntime.set_default_logger_severity(4)
    failures = {name: failure(folder) for name, folder in cases().items() if name.startswith("node/")}
    for name, why in failures.items():
        if why:
            print(f"{name:60} {why}")
    right = [name for name, why in failures.items() if not why]
    print(f"ONNX Runtime {onnxruntime.__version__} passes {len(right)} of {len(failures)}")
    if "--write" in arguments:
        RIGHT.write_text("\n".join(right) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
