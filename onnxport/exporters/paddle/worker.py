"""Run a PaddlePaddle model; a script for the Python of PaddlePaddle's environment, which lacks our libraries.

Requests come on stdin, answers go to what stdout was: a frame of JSON and one of arrays (NumPy's .npz, "0", "1", ...
in the model's order), each behind its length. When stdin ends, it ends and removes the model's folder.

    python worker.py inference.json inference.pdiparams FOLDER
"""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import sys
import traceback
from typing import Any, BinaryIO

import numpy as np

_HEADER = struct.Struct("<Q")
_DTYPES = {"FP32": "float32", "FP64": "float64", "FP16": "float16", "BF16": "bfloat16"}


class Model:
    """A program (inference.json or inference.pdmodel) with its weights in the inference library."""

    def __init__(self, program: str, weights: str) -> None:
        from paddle import inference

        self._program, self._weights, self._inference = program, weights, inference
        self._predictors: dict[bool, Any] = {}

    def describe(self) -> dict[str, Any]:
        """Return names, dtypes and shapes; -1 is an open dimension."""
        import paddle

        paddle.enable_static()
        prefix = self._program.rpartition(".")[0]
        executor = paddle.static.Executor(paddle.CPUPlace())
        program, feeds, fetches = paddle.static.load_inference_model(prefix, executor)
        predictor = self._predictor(False)
        return {
            "version": paddle.__version__,
            "inputs": [self._spec(name, _variable(program, name)) for name in feeds],
            "outputs": [
                self._spec(name, variable)
                for name, variable in zip(predictor.get_output_names(), fetches, strict=True)
            ],
        }

    def run(self, arrays: list[Any], other: bool) -> list[Any]:
        """Return the outputs of one run; with `other`, without graph optimizations and oneDNN."""
        predictor = self._predictor(other)
        for name, array in zip(predictor.get_input_names(), arrays, strict=True):
            handle = predictor.get_input_handle(name)
            handle.reshape(list(array.shape))
            handle.copy_from_cpu(np.ascontiguousarray(array))
        predictor.run()
        return [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]

    def _predictor(self, other: bool) -> Any:
        if other not in self._predictors:
            config = self._inference.Config(self._program, self._weights)
            config.disable_gpu()
            config.disable_glog_info()
            config.switch_ir_optim(not other)
            if other:
                config.disable_mkldnn()
            self._predictors[other] = self._inference.create_predictor(config)
        return self._predictors[other]

    def _spec(self, name: str, variable: Any) -> dict[str, Any]:
        kind = str(variable.dtype).strip("<>").partition(":")[0].rpartition(".")[2]
        return {
            "name": name,
            "dtype": _DTYPES.get(kind, kind.lower()),
            "shape": [int(dim) for dim in variable.shape],
        }


def _variable(program: Any, name: str) -> Any:
    """Return the variable of an input in a program of either form."""
    block = program.global_block()
    for op in block.ops:
        if callable(getattr(op, "name", None)) and op.name() == "pd_op.data" and op.attrs()["name"] == name:
            return op.result(0)
    return block.var(name)


def _read(stream: BinaryIO) -> bytes:
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise EOFError
    (length,) = _HEADER.unpack(header)
    return stream.read(length)


def _unpack(frame: bytes) -> list[Any]:
    with np.load(io.BytesIO(frame)) as archive:
        return [archive[str(number)] for number in range(len(archive.files))]


def _serve(program: str, weights: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    model = None
    while True:
        try:
            request, arrays = json.loads(_read(sys.stdin.buffer)), _unpack(_read(sys.stdin.buffer))
        except EOFError:
            return
        results: list[Any] = []
        try:
            model = model or Model(program, weights)
            if request["method"] == "describe":
                said = model.describe()
            else:
                said, results = {}, model.run(arrays, request["other"])
        except Exception as error:
            traceback.print_exc()
            said = {"error": f"{type(error).__name__}: {error}"}
        held = io.BytesIO()
        np.savez(held, **{str(number): array for number, array in enumerate(results)})
        for frame in (json.dumps(said).encode(), held.getvalue()):
            answers.write(_HEADER.pack(len(frame)) + frame)
        answers.flush()


if __name__ == "__main__":
    try:
        _serve(sys.argv[1], sys.argv[2])
    finally:
        shutil.rmtree(sys.argv[3], ignore_errors=True)
