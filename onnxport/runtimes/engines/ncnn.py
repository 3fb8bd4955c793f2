"""ncnn (Tencent) on the CPU: ONNX converted by its own converter pnnx for given sizes, into a temporary folder.

pnnx is run as a program: its Python package imports PyTorch before it starts the same program. Beside ncnn's files it
writes a script that shows how to feed them, which alone tells which axis of each tensor is the batch's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.runtimes.engines.base import EngineRuntime, Refusal, Session, Work
from onnxport.runtimes.engines.native_output import listening


@contextlib.contextmanager
def _passive() -> Iterator[None]:
    """Within it an OpenMP is loaded whose threads wait without spinning: beside others that compute, ncnn's would take
    a thousand times as long. It reads the setting then, and only then; the user's own is left as it is."""
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

# What ncnn holds, by what the model declares: four bytes an element.
_HELD = {"float32": "float32", "int32": "int32", "int64": "int32"}
_LIMIT = 300  # seconds for a conversion; the largest measured takes four
_BATCH_AXIS = re.compile(r"\b((?:in|out)\d+)\.numpy\((?:\), )?batch_index=(\d+)\)")
_OUTPUT = re.compile(r"^pnnx\.Output\s+out(\d+)\s.*?#\w+=\(([\d,]*)\)\w+\s*$", re.MULTILINE)


class NcnnRuntime(EngineRuntime):
    """A model in ncnn, with float32 weights, storage and arithmetic."""

    title = "ncnn"
    distribution = "ncnn"
    types = frozenset(_HELD)

    def _load(self, work: Work) -> Session:
        with tempfile.TemporaryDirectory(prefix="onnxport-") as name:
            folder = Path(name)
            _convert(work, folder)
            return _Loaded(work, folder)


class _Loaded:
    """The net that pnnx left in `folder`."""

    def __init__(self, work: Work, folder: Path) -> None:
        self._axes = {
            name: int(axis) for name, axis in _BATCH_AXIS.findall((folder / "model_ncnn.py").read_text())
        }
        self._shapes = _output_shapes((folder / "model.pnnx.param").read_text())
        self._inputs = {f"in{place}": spec for place, spec in enumerate(work.inputs)}
        fed = {name for name in self._axes if name.startswith("in")}
        if fed != self._inputs.keys() or len(self._shapes) != len(work.wanted):
            raise Refusal(
                f"pnnx keeps {len(fed)} of {len(self._inputs)} inputs, and which these are it does not say"
            )
        self._net = net = ncnn.Net()
        option = net.opt
        option.num_threads = work.threads
        option.use_vulkan_compute = False
        for name in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage", "bf16_packed"):
            if hasattr(option, f"use_{name}"):
                setattr(option, f"use_{name}", False)
        with listening() as heard:
            read = net.load_param(str(folder / "model.ncnn.param")) or net.load_model(
                str(folder / "model.ncnn.bin")
            )
        if read != 0:
            raise Refusal(_last_line(heard.text))

    def run(self, feeds: Feeds) -> list[Array]:
        values = self._values(feeds)
        if len(values) < len(self._shapes):
            with listening() as heard:  # it says why on the way only
                self._values(feeds)
            raise Refusal(f"output {len(values)}: {_last_line(heard.text)}")
        return values

    def _values(self, feeds: Feeds) -> list[Array]:
        """The outputs up to the first that fails."""
        found = []
        with self._net.create_extractor() as extractor:
            for name, spec in self._inputs.items():
                held = np.ascontiguousarray(feeds[spec.name], dtype=_HELD[spec.dtype])
                extractor.input(name, ncnn.Mat(held, batch_index=self._axes[name]).clone())
            for place, shape in enumerate(self._shapes):
                failed, mat = extractor.extract(f"out{place}")
                if failed:
                    break
                found.append(_array(mat.numpy(batch_index=self._axes[f"out{place}"]), shape))
        return found


def _convert(work: Work, folder: Path) -> None:
    """Has pnnx write `model.ncnn.param`, `.bin` and what it says of them into `folder`.

    Raises:
        Refusal: it does not, with what it says last.
    """
    assert work.sizes is not None
    for file in (work.file, *work.companions):
        link = folder / ("model.onnx" if file == work.file else file.relative_to(work.file.parent))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.resolve())
    # It runs the model once, on noise unless given inputs: an index that a table lacks ends it.
    given = [f"given{place}.npy" for place in range(len(work.inputs))]
    for name, spec in zip(given, work.inputs, strict=True):
        np.save(folder / name, np.zeros(work.sizes[spec.name], spec.dtype))
    command = [_program(), "model.onnx", f"input={','.join(given)}", "fp16=0"]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise Refusal(f"pnnx did not end within {_LIMIT} s") from None
    last = _last_line((done.stdout + done.stderr).decode(errors="replace"))
    if done.returncode < 0:
        raise Refusal(f"pnnx crashed ({signal.Signals(-done.returncode).name}): {last}")
    if done.returncode > 0 or not (folder / "model.ncnn.bin").exists():
        raise Refusal(f"pnnx says: {last}")


def _program() -> str:
    """pnnx itself, which lies in its package."""
    spec = importlib.util.find_spec("pnnx")
    assert spec is not None, "the kind asks for it"
    assert spec.origin is not None
    return os.fspath(Path(spec.origin).with_name("pnnx.exe" if sys.platform == "win32" else "pnnx"))


def _output_shapes(text: str) -> Sequence[tuple[int, ...]]:
    """The shape of every output, in their order."""
    found = {
        int(place): tuple(int(dim) for dim in shape.split(",") if dim)
        for place, shape in _OUTPUT.findall(text)
    }
    return [found[place] for place in sorted(found)]


def _array(value: Array, shape: tuple[int, ...]) -> Array:
    """A Mat's content in the shape that pnnx inferred, of which it may lack axes of size 1."""
    if value.size != np.prod(shape, dtype=int):
        return np.array(value)
    return np.array(value).reshape(shape)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it says nothing"
