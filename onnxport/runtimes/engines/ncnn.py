"""ncnn (Tencent) on the CPU: its converter pnnx writes files for given sizes into a temporary folder.

pnnx runs as a program, since its Python package imports PyTorch. Only the script that it writes beside ncnn's files
names the batch axis of each tensor.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.scratch import ScratchFolder
from onnxport.runtimes.engines.base import EngineRuntime, Refusal, Session, Work, captured_output


@contextlib.contextmanager
def _passive() -> Iterator[None]:
    """Load OpenMP, which reads its policy once, with threads that wait without spinning, unless the user sets it.

    With spinning, ncnn takes a thousand times as long beside other processes.
    """
    name = "OMP_WAIT_POLICY"
    is_set = name in os.environ
    os.environ.setdefault(name, "PASSIVE")
    try:
        yield
    finally:
        if not is_set:
            del os.environ[name]


with _passive():
    import ncnn

# Declared dtype -> dtype in ncnn: four bytes an element.
_DTYPES = {"float32": "float32", "int32": "int32", "int64": "int32"}
_TIMEOUT = 300  # seconds for a conversion; the largest measured takes four
_BATCH_AXIS = re.compile(r"\b((?:in|out)\d+)\.numpy\((?:\), )?batch_index=(\d+)\)")
_OUTPUT = re.compile(r"^pnnx\.Output\s+out(\d+)\s.*?#\w+=\(([\d,]*)\)\w+\s*$", re.MULTILINE)


class NcnnRuntime(EngineRuntime):
    """A model in ncnn, with float32 weights, storage and arithmetic."""

    title = "ncnn"
    distribution = "ncnn"
    types = frozenset(_DTYPES)

    def _load(self, work: Work) -> Session:
        with ScratchFolder() as name:
            folder = Path(name)
            _convert(work, folder)
            return _Session(work, folder)


class _Session:
    """The net that pnnx wrote to `folder`."""

    def __init__(self, work: Work, folder: Path) -> None:
        self._axes = {
            name: int(axis) for name, axis in _BATCH_AXIS.findall((folder / "model_ncnn.py").read_text())
        }
        self._shapes = _output_shapes((folder / "model.pnnx.param").read_text())
        self._inputs = {f"in{place}": spec for place, spec in enumerate(work.inputs)}
        fed = {name for name in self._axes if name.startswith("in")}
        if fed != self._inputs.keys() or len(self._shapes) != len(work.wanted):
            raise Refusal(f"pnnx keeps {len(fed)} of {len(self._inputs)} inputs and does not say which")
        self._net = net = ncnn.Net()
        option = net.opt
        option.num_threads = work.threads
        option.use_vulkan_compute = False
        for name in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage", "bf16_packed"):
            if hasattr(option, f"use_{name}"):
                setattr(option, f"use_{name}", False)
        with captured_output() as output:
            failed = net.load_param(str(folder / "model.ncnn.param")) or net.load_model(
                str(folder / "model.ncnn.bin")
            )
        if failed:
            raise Refusal(_last_line(output.text))

    def run(self, feeds: Feeds) -> list[Array]:
        values = self._extract(feeds)
        if len(values) < len(self._shapes):
            with captured_output() as output:  # ncnn prints the reason and returns none
                self._extract(feeds)
            raise Refusal(f"output {len(values)}: {_last_line(output.text)}")
        return values

    def _extract(self, feeds: Feeds) -> list[Array]:
        """Return the outputs up to the first that fails."""
        found = []
        with self._net.create_extractor() as extractor:
            for name, spec in self._inputs.items():
                array = np.ascontiguousarray(feeds[spec.name], dtype=_DTYPES[spec.dtype])
                extractor.input(name, ncnn.Mat(array, batch_index=self._axes[name]).clone())
            for place, shape in enumerate(self._shapes):
                failed, mat = extractor.extract(f"out{place}")
                if failed:
                    break
                found.append(_array(mat.numpy(batch_index=self._axes[f"out{place}"]), shape))
        return found


def _convert(work: Work, folder: Path) -> None:
    """Run pnnx, which writes `model.ncnn.param`, `.bin` and its notes into `folder`; Refusal with its last line."""
    assert work.sizes is not None
    for file in (work.file, *work.companions):
        link = folder / ("model.onnx" if file == work.file else file.relative_to(work.file.parent))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.resolve())
    # pnnx runs the model once. On noise, its default, an index out of range would end it.
    feeds = [f"given{place}.npy" for place in range(len(work.inputs))]
    for name, spec in zip(feeds, work.inputs, strict=True):
        np.save(folder / name, np.zeros(work.sizes[spec.name], spec.dtype))
    package = importlib.util.find_spec("pnnx")
    assert package is not None, "Kind.distributions has pnnx"
    assert package.origin is not None
    program = Path(package.origin).with_name("pnnx.exe" if sys.platform == "win32" else "pnnx")
    command = [os.fspath(program), "model.onnx", f"input={','.join(feeds)}", "fp16=0"]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise Refusal(f"pnnx did not end within {_TIMEOUT} s") from None
    last = _last_line((done.stdout + done.stderr).decode(errors="replace"))
    if done.returncode < 0:
        raise Refusal(f"pnnx crashed ({signal.Signals(-done.returncode).name}): {last}")
    if done.returncode > 0 or not (folder / "model.ncnn.bin").exists():
        raise Refusal(f"pnnx says: {last}")


def _output_shapes(text: str) -> Sequence[tuple[int, ...]]:
    """Return the shape of every output, in their order."""
    found = sorted((int(place), shape) for place, shape in _OUTPUT.findall(text))
    return [tuple(int(dim) for dim in shape.split(",") if dim) for _, shape in found]


def _array(value: Array, shape: tuple[int, ...]) -> Array:
    """Return a Mat's content in the shape that pnnx inferred; a Mat may lack axes of size 1."""
    if value.size != np.prod(shape, dtype=int):
        return np.array(value)
    return np.array(value).reshape(shape)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed no reason"
