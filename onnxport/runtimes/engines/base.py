"""What the engines of others have in common: an ONNX model's signature over something that is loaded at given sizes."""

from __future__ import annotations

import importlib.metadata
import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import onnx

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError, OnnxportError
from onnxport.core.resources import Closing
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.runtimes.base import RunError, check_feeds, check_taps
from onnxport.runtimes.options import RuntimeOptions

_KEPT = 3  # sessions that stay loaded; the judge comes back to few sizes
_LONGEST = 300  # characters of a cause

Sizes = Mapping[str, tuple[int, ...]]


class Session(Protocol):
    """A model that is loaded. What it raises is the engine's cause."""

    def run(self, feeds: Feeds) -> Sequence[Array]:
        """The outputs in the order in which they were wanted."""
        ...


class Refusal(Exception):
    """An engine's own cause, where it raises none itself."""


@dataclass(frozen=True)
class Work:
    """What an engine is to load.

    Attributes:
        file: the ONNX file.
        companions: with its external data, below its folder.
        inputs: of the model.
        wanted: names of the outputs.
        sizes: of every input; None where the engine takes any.
        threads: of its kernels.
        own: settings that only this engine knows.
    """

    file: Path
    companions: tuple[Path, ...]
    inputs: tuple[TensorSpec, ...]
    wanted: tuple[str, ...]
    sizes: Sizes | None
    threads: int
    own: Mapping[str, str]


class EngineRuntime(Closing):
    """An ONNX model in an engine of others.

    A model whose sizes are all declared is loaded at once, any other by the first run where the engine needs sizes.

    Args:
        path: the `.onnx` file.
        options: `threads` and `own`, where the engine knows them.

    Raises:
        InputError: no ONNX model, or one that the engine refuses; the cause is the engine's.

    Attributes:
        title: what the engine calls itself.
        distribution: that it is installed by.
        fixes_sizes: whether what is loaded runs at one choice of sizes only.
        types: element types of inputs and outputs that the engine takes and gives, as they are or in another width.
    """

    title: ClassVar[str]
    distribution: ClassVar[str]
    fixes_sizes: ClassVar[bool] = True
    types: ClassVar[frozenset[str]]

    def __init__(self, path: Path, options: RuntimeOptions) -> None:
        self._path, self._options = path, options
        self._model = Model.load(path)
        self._inputs, self._outputs = self._model.inputs, self._model.outputs
        self._sessions: dict[tuple[object, ...], Session] = {}
        self._has_loaded = False
        self._check_types()
        if not self.fixes_sizes or all(spec.is_static for spec in self._inputs):
            self._session({spec.name: spec.shape for spec in self._inputs}, ())  # type: ignore[misc]  # no size is open

    @property
    def name(self) -> str:
        return f"{self.title} {importlib.metadata.version(self.distribution)}"

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._outputs

    @property
    def taps(self) -> frozenset[str]:
        """Every value that a node of the main graph makes. Asking for some has the engine load a copy of the model that
        gives them as outputs, which it may compute otherwise than where they stay inside."""
        outputs = {spec.name for spec in self._outputs}
        made = {value.name for node in self._model.graph for value in node.outputs if value.name}
        return frozenset(made - outputs)

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`; also raises InputError where the engine refuses the model at the first sizes it meets."""
        check_feeds(self._inputs, feeds)
        if taps:
            check_taps(self.taps, taps, str(self._path))
        session = self._session(_sizes(feeds), tuple(taps))
        try:
            values = session.run(feeds)
        except OnnxportError:
            raise
        except Exception as error:  # each engine has classes of its own
            raise self._failed(feeds, one_line(error)) from error
        found = dict(zip(self._wanted(taps), values, strict=True))
        declared = {spec.name: spec.dtype for spec in self._outputs}
        return {name: self._as_declared(name, found[name], declared.get(name)) for name in found}

    def prepare(self, feeds: Feeds) -> None:
        """Loads the model for the sizes of `feeds`, so that no run has to (UsageError, InputError as `run`)."""
        check_feeds(self._inputs, feeds)
        self._session(_sizes(feeds), ())

    def close(self) -> None:
        self._sessions.clear()

    @abstractmethod
    def _load(self, work: Work) -> Session:
        """Has the engine load a model; any exception but OnnxportError is taken for its cause."""

    def _session(self, sizes: Sizes, taps: tuple[str, ...]) -> Session:
        key = (tuple(sizes.items()) if self.fixes_sizes else (), taps)
        if key not in self._sessions:
            while len(self._sessions) >= _KEPT:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[key] = self._loaded(sizes, taps)
        return self._sessions[key]

    def _loaded(self, sizes: Sizes, taps: tuple[str, ...]) -> Session:
        with tempfile.TemporaryDirectory(prefix="onnxport-") as folder:
            work = Work(
                file=self._showing(taps, Path(folder)) if taps else self._path,
                companions=() if taps else self._model.external_files,
                inputs=self._inputs,
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
                if self._has_loaded:
                    raise RunError(
                        f"{self.title} cannot load {self._path} for {_said(sizes)}", why=one_line(error)
                    ) from error
                raise InputError(f"{self.title} cannot load {self._path}", why=one_line(error)) from error
        self._has_loaded = True
        return session

    def _wanted(self, taps: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*(spec.name for spec in self._outputs), *taps)))

    def _showing(self, taps: Sequence[str], folder: Path) -> Path:
        """A copy of the model with `taps` as further outputs, their types as far as ONNX infers them."""
        data = self._model.to_bytes()
        if data is None:
            raise InputError(f"{self._path} is too large to show intermediate values")
        proto = onnx.ModelProto.FromString(data)
        known = {info.name: info for info in onnx.shape_inference.infer_shapes(proto).graph.value_info}
        proto.graph.output.extend(known.get(name, onnx.ValueInfoProto(name=name)) for name in taps)
        copy = folder / self._path.name
        copy.write_bytes(proto.SerializeToString())
        return copy

    def _check_types(self) -> None:
        for spec in (*self._inputs, *self._outputs):
            if spec.dtype not in self.types:
                raise InputError(
                    f"{self.title} cannot load {self._path}",
                    why=f"it takes and gives no {spec.dtype}, which {spec.name!r} is",
                )

    def _as_declared(self, name: str, value: Array, dtype: str | None) -> Array:
        """A value in the type that the model declares: an engine may hold integers of one width only."""
        if dtype is None or value.dtype.name == dtype:
            return value
        wanted = np.dtype(dtype)
        if wanted.kind == value.dtype.kind or (wanted.kind in "iub" and value.dtype.kind in "iub"):
            return value.astype(wanted)
        raise RunError(
            f"{self.title} gives {name!r} of {self._path} as {value.dtype}, the model declares {dtype}"
        )

    def _failed(self, feeds: Feeds, why: str) -> RunError:
        return RunError(f"{self.title} cannot run {self._path} on {_said(_sizes(feeds))}", why=why)


def one_line(error: Exception) -> str:
    """An engine's message in one line that fits a terminal."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__


def _sizes(feeds: Feeds) -> Sizes:
    return {name: array.shape for name, array in feeds.items()}


def _said(sizes: Sizes) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in sizes.items())
