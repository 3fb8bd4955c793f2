"""MNN (Alibaba) on the CPU: ONNX converted by its converter to a temporary file, sizes left open.

The converter is called as a function of its native module. The command `mnnconvert` and the package's modules around it
are never imported: at import they install a logging library with pip, and they report their use to a server.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import UsageError
from onnxport.runtimes.engines.base import EngineRuntime, Refusal, Session, Work
from onnxport.runtimes.engines.native_output import listening

with listening():  # it prints what the processor can do
    import _tools
    import MNN.expr
    import MNN.nn

# What MNN computes in, by what the model declares: its integers are int32, booleans included.
_HELD = {
    "bool": "int32",
    "float32": "float32",
    "int8": "int8",
    "int32": "int32",
    "int64": "int32",
    "uint8": "uint8",
}
_TYPES = {"float32": MNN.expr.float, "int8": MNN.expr.int8, "int32": MNN.expr.int, "uint8": MNN.expr.uint8}


_WINOGRAD_MEMORY_LEVEL = 3  # of MNN's enum of hints, which its Python package does not name
_WINOGRAD = {"on": None, "off": 0}  # setting to level; None leaves it at MNN's own


class MnnRuntime(EngineRuntime):
    """A model in MNN, at high precision: float32 stays float32. `winograd=off` has it compute convolutions without
    Winograd's transforms, of which it otherwise takes large ones for speed: they cost up to three digits."""

    title = "MNN"
    distribution = "MNN"
    fixes_sizes = False
    types = frozenset(_HELD)

    def _load(self, work: Work) -> Session:
        winograd = work.own.get("winograd", "on")
        if winograd not in _WINOGRAD:
            raise UsageError(f"winograd has the value {winograd!r}", fix=f"give {', '.join(_WINOGRAD)}")
        with tempfile.TemporaryDirectory(prefix="onnxport-") as folder:
            converted = Path(folder, "model.mnn")
            _convert(work.file, converted)
            settings = {"backend": "CPU", "numThread": work.threads, "precision": "high"}
            with listening():
                manager = MNN.nn.create_runtime_manager((settings,))
                if (level := _WINOGRAD[winograd]) is not None:
                    manager.set_hint(_WINOGRAD_MEMORY_LEVEL, level)
                inputs = [spec.name for spec in work.inputs]
                net = MNN.nn.load_module_from_file(
                    str(converted), inputs, list(work.wanted), runtime_manager=manager
                )
        return _Loaded({spec.name: _HELD[spec.dtype] for spec in work.inputs}, manager, net)


def _convert(source: Path, target: Path) -> None:
    """Raises Refusal with the converter's last words."""
    arguments = ["-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(target), "--bizCode", "onnxport"]
    with listening() as heard:
        done = _tools.mnnconvert(["mnnconvert", *arguments])
    if done is False or not target.exists():
        raise Refusal(_last_words(heard.text))


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[-3:]) or "its converter says nothing"


class _Loaded:
    def __init__(self, held: dict[str, str], manager: Any, net: Any) -> None:
        self._held, self._manager, self._net = held, manager, net

    def run(self, feeds: Feeds) -> Sequence[Array]:
        values = self._values(feeds)
        if any(value is None for value in values):
            with listening() as heard:  # it says why on the way only
                self._values(feeds)
            raise Refusal(_last_words(heard.text))
        return [value for value in values if value is not None]

    def _values(self, feeds: Feeds) -> list[Array | None]:
        found = self._net.forward([_variable(feeds[name], held) for name, held in self._held.items()])
        return [_array(each) for each in found]


def _variable(array: Array, dtype: str) -> Any:
    held = array.astype(dtype)
    if array.dtype.kind == "i" and not np.array_equal(held, array):
        raise Refusal(f"it holds integers in 32 bits, which {int(np.abs(array).max())} exceeds")
    return MNN.expr.const(np.ascontiguousarray(held), array.shape, MNN.expr.NCHW, _TYPES[dtype])


def _array(variable: Any) -> Array | None:
    """None for what it did not compute."""
    plain = MNN.expr.convert(variable, MNN.expr.NCHW)
    value = plain.read()
    return None if value is None else np.array(value).reshape(plain.shape)
