"""MNN (Alibaba) on the CPU: its converter writes a temporary file, sizes stay open.

We call the converter's native module: the command `mnnconvert` and its Python modules install a logging library with
pip at import and report their use to a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import UsageError
from onnxport.core.scratch import ScratchFolder
from onnxport.runtimes.engines.base import EngineRuntime, Refusal, Session, Work, captured_output

with captured_output():  # it prints the CPU's features
    import _tools
    import MNN.expr
    import MNN.nn

# Declared dtype -> dtype in MNN: booleans and wide integers are int32.
_DTYPES = {
    "bool": "int32",
    "float32": "float32",
    "int8": "int8",
    "int32": "int32",
    "int64": "int32",
    "uint8": "uint8",
}
_TYPES = {"float32": MNN.expr.float, "int8": MNN.expr.int8, "int32": MNN.expr.int, "uint8": MNN.expr.uint8}


_WINOGRAD_MEMORY_LEVEL = 3  # in MNN's enum of hints, which its Python package does not name
_WINOGRAD = {"on": None, "off": 0}  # setting -> level; None keeps MNN's default


class MnnRuntime(EngineRuntime):
    """A model in MNN, at high precision: float32 stays float32.

    `winograd=off` computes convolutions without Winograd's transforms; MNN's large ones cost up to three digits.
    """

    title = "MNN"
    distribution = "MNN"
    fixes_sizes = False
    types = frozenset(_DTYPES)

    @property
    def remarks(self) -> tuple[str, ...]:
        """A known error of MNN that this model meets (seen in 3.6.1), for the report; the file is given as it is."""
        found = [
            node
            for node in self._model.graph.all_nodes()
            if node.op_type == "BatchNormalization" and "epsilon" not in node.attributes
        ]
        if not found:
            return ()
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return (
            f"{self.title} computes with epsilon 0 where a BatchNormalization leaves out ONNX's default of 1e-5, as "
            f"{found[0].name or found[0].outputs[0].name!r}{more}: write it out, or fuse it by onnxport optimize",
        )

    def _load(self, work: Work) -> Session:
        winograd = work.own.get("winograd", "on")
        if winograd not in _WINOGRAD:
            raise UsageError(f"winograd: {winograd!r} is not allowed", fix=f"give {', '.join(_WINOGRAD)}")
        with ScratchFolder() as folder:
            converted = Path(folder, "model.mnn")
            _convert(work.file, converted)
            settings = {"backend": "CPU", "numThread": work.threads, "precision": "high"}
            with captured_output():
                manager = MNN.nn.create_runtime_manager((settings,))
                if (level := _WINOGRAD[winograd]) is not None:
                    manager.set_hint(_WINOGRAD_MEMORY_LEVEL, level)
                inputs = [spec.name for spec in work.inputs]
                net = MNN.nn.load_module_from_file(
                    str(converted), inputs, list(work.wanted), runtime_manager=manager
                )
        return _Session({spec.name: _DTYPES[spec.dtype] for spec in work.inputs}, manager, net)


def _convert(source: Path, target: Path) -> None:
    """Convert an ONNX file; raises Refusal with the converter's last lines."""
    arguments = ["-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(target), "--bizCode", "onnxport"]
    with captured_output() as output:
        converted = _tools.mnnconvert(["mnnconvert", *arguments])
    if converted is False or not target.exists():
        raise Refusal(_last_lines(output.text))


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[-3:]) or "its converter printed no reason"


class _Session:
    def __init__(self, dtypes: dict[str, str], manager: Any, net: Any) -> None:
        self._dtypes, self._net = dtypes, net
        self._manager = manager  # the net uses it and does not keep it alive

    def run(self, feeds: Feeds) -> Sequence[Array]:
        values = self._forward(feeds)
        if any(value is None for value in values):
            with captured_output() as output:  # MNN prints the reason and returns none
                self._forward(feeds)
            raise Refusal(_last_lines(output.text))
        return [value for value in values if value is not None]

    def _forward(self, feeds: Feeds) -> list[Array | None]:
        found = self._net.forward([_to_mnn(feeds[name], dtype) for name, dtype in self._dtypes.items()])
        return [_from_mnn(each) for each in found]


def _to_mnn(array: Array, dtype: str) -> Any:
    cast = array.astype(dtype)
    if array.dtype.kind == "i" and not np.array_equal(cast, array):
        raise Refusal(f"its integers have 32 bits, which {int(np.abs(array).max())} exceeds")
    return MNN.expr.const(np.ascontiguousarray(cast), array.shape, MNN.expr.NCHW, _TYPES[dtype])


def _from_mnn(variable: Any) -> Array | None:
    """Return a variable's content; None where MNN did not compute it."""
    plain = MNN.expr.convert(variable, MNN.expr.NCHW)
    value = plain.read()
    return None if value is None else np.array(value).reshape(plain.shape)
