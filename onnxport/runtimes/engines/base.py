"""The base of third-party engines: an ONNX model's signature over the engine's session, loaded for given sizes."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import onnx

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError, OnnxportError
from onnxport.core.resources import Closing
from onnxport.core.scratch import ScratchFolder
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.runtimes.base import RunError, check_feeds, check_taps, format_shapes
from onnxport.runtimes.options import RuntimeOptions

_MOST_SESSIONS = 3  # validate alternates between few sizes
_LONGEST = 300  # characters of a message

Sizes = Mapping[str, tuple[int, ...]]


class Session(Protocol):
    """A loaded model; its exceptions carry the engine's message."""

    def run(self, feeds: Feeds) -> Sequence[Array]:
        """Return the outputs in the order of `Work.wanted`."""


class Refusal(Exception):
    """An engine's message, where the engine itself raises nothing."""


@dataclass(frozen=True)
class Work:
    """A model for an engine to load."""

    file: Path  # the ONNX file
    companions: tuple[Path, ...]  # files of its external data, below its folder
    inputs: tuple[TensorSpec, ...]
    wanted: tuple[str, ...]  # names of the outputs
    sizes: Sizes | None  # shape of every input; None where the engine takes any
    threads: int  # kernel threads
    own: Mapping[str, str]  # settings that only this engine knows


class EngineRuntime(Closing):
    """An ONNX model in a third-party engine, with its `threads` and `own` settings where the engine knows them.

    An engine that needs sizes loads a model with open dimensions at the first run, any other model at once.

    Raises:
        InputError: no ONNX model, or one that the engine refuses, with the engine's message.

    Attributes:
        title: the engine's own name.
        distribution: its distribution in the package index.
        fixes_sizes: whether a loaded model runs at one choice of sizes only.
        types: element types that the engine takes and returns, in this or another width.
    """

    title: ClassVar[str]
    distribution: ClassVar[str]
    fixes_sizes: ClassVar[bool] = True
    types: ClassVar[frozenset[str]]

    def __init__(self, path: Path, options: RuntimeOptions) -> None:
        self._path, self._options = path, options
        self._model = Model.load(path)
        self.inputs, self.outputs = self._model.inputs, self._model.outputs
        self._sessions: dict[tuple[object, ...], Session] = {}
        self._has_loaded = False
        self._check_types()
        if not self.fixes_sizes or all(spec.is_static for spec in self.inputs):
            self._session({spec.name: spec.shape for spec in self.inputs}, ())  # type: ignore[misc]  # no size is open

    @property
    def name(self) -> str:
        return f"{self.title} {importlib.metadata.version(self.distribution)}"

    @property
    def taps(self) -> frozenset[str]:
        """The values that nodes of the main graph compute; the engine loads a copy with the wanted ones as outputs."""
        return self._model.intermediate_values

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`; raises InputError where the engine refuses the model at the first sizes that it meets."""
        check_feeds(self.inputs, feeds)
        if taps:
            check_taps(self.taps, taps, str(self._path))
        session = self._session(_sizes(feeds), tuple(taps))
        try:
            values = session.run(feeds)
        except OnnxportError:
            raise
        except Exception as error:  # each engine has classes of its own
            message = f"{self.title} cannot run {self._path} on {format_shapes(feeds)}"
            raise RunError(message, why=one_line(error)) from error
        found = dict(zip(self._wanted(taps), values, strict=True))
        declared = {spec.name: spec.dtype for spec in self.outputs}
        return {name: self._cast(name, found[name], declared.get(name)) for name in found}

    def prepare(self, feeds: Feeds) -> None:
        """Load the model for the sizes of `feeds` before a run; raises UsageError and InputError as `run`."""
        check_feeds(self.inputs, feeds)
        self._session(_sizes(feeds), ())

    def close(self) -> None:
        self._sessions.clear()

    @abstractmethod
    def _load(self, work: Work) -> Session:
        """Load a model into the engine; any exception but OnnxportError counts as the engine's message."""

    def _session(self, sizes: Sizes, taps: tuple[str, ...]) -> Session:
        key = (tuple(sizes.items()) if self.fixes_sizes else (), taps)
        if key not in self._sessions:
            while len(self._sessions) >= _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[key] = self._open(sizes, taps)
        return self._sessions[key]

    def _open(self, sizes: Sizes, taps: tuple[str, ...]) -> Session:
        with ScratchFolder() as folder:
            work = Work(
                file=self._write_tapped(taps, Path(folder)) if taps else self._path,
                companions=() if taps else self._model.external_files,
                inputs=self.inputs,
                wanted=self._wanted(taps),
                sizes=sizes if self.fixes_sizes else None,
                threads=self._options.threads,
                own=dict(self._options.own),
            )
            try:
                session = self._load(work)
            except OnnxportError:
                raise
            except Exception as error:  # as in run
                message = f"{self.title} cannot load {self._path}"
                if self._has_loaded:
                    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in sizes.items())
                    raise RunError(f"{message} for {shapes}", why=one_line(error)) from error
                raise InputError(message, why=one_line(error)) from error
        self._has_loaded = True
        return session

    def _wanted(self, taps: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*(spec.name for spec in self.outputs), *taps)))

    def _write_tapped(self, taps: Sequence[str], folder: Path) -> Path:
        """Write a copy of the model with `taps` as further outputs, typed as far as ONNX infers them."""
        data = self._model.to_bytes()
        if data is None:
            raise InputError(f"{self._path} is too large for a copy that returns intermediate values")
        proto = onnx.ModelProto.FromString(data)
        known = {info.name: info for info in onnx.shape_inference.infer_shapes(proto).graph.value_info}
        proto.graph.output.extend(known.get(name, onnx.ValueInfoProto(name=name)) for name in taps)
        copy = folder / self._path.name
        copy.write_bytes(proto.SerializeToString())
        return copy

    def _check_types(self) -> None:
        for spec in (*self.inputs, *self.outputs):
            if spec.dtype not in self.types:
                raise InputError(
                    f"{self.title} cannot load {self._path}",
                    why=f"{spec.name!r} is {spec.dtype}, which it neither takes nor returns",
                )

    def _cast(self, name: str, value: Array, dtype: str | None) -> Array:
        """Cast a value to the declared type: an engine may have integers of one width only."""
        if dtype is None or value.dtype.name == dtype:
            return value
        wanted = np.dtype(dtype)
        if wanted.kind == value.dtype.kind or (wanted.kind in "iub" and value.dtype.kind in "iub"):
            return value.astype(wanted)
        raise RunError(
            f"{self.title} returns {name!r} of {self._path} as {value.dtype}, the model declares {dtype}"
        )


def one_line(error: Exception) -> str:
    """Return an engine's message in one line that fits a terminal."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__


def _sizes(feeds: Feeds) -> Sizes:
    return {name: array.shape for name, array in feeds.items()}


@dataclass
class Output:
    """The text that was printed; set at the end of the block."""

    text: str = ""


@contextlib.contextmanager
def captured_output() -> Iterator[Output]:
    """Redirect what this process prints, native code included, to `Output.text`."""
    output = Output()
    sys.stdout.flush()
    sys.stderr.flush()
    originals = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield output
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, original in enumerate(originals, start=1):
                os.dup2(original, number)
                os.close(original)
            file.seek(0)
            output.text = file.read().decode(errors="replace")
