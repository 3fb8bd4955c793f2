"""ONNX Runtime on the CPU, for `.onnx` and `.ort` files and for models in memory."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError, MissingDependencyError, UsageError
from onnxport.core.resources import Closing
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.stored_size import stored_bytes
from onnxport.runtimes.base import MemoryFullError, RunError, check_feeds, check_taps
from onnxport.runtimes.options import OrtLevel, RuntimeOptions
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.runtimes.ort.integer_products import holds_integer_products
from onnxport.runtimes.ort.types_and_messages import cause, spec_of

if TYPE_CHECKING:
    from onnxport.formats.model import Model

_PROVIDER = "ExecutionProvider"
_ONNX_BFLOAT16 = 16  # TensorProto.BFLOAT16, without an import of onnx

_LARGE = 256 * 2**20  # bytes; what a smaller model takes twice is no more than what ONNX Runtime takes itself
_SAID: dict[OrtLevel, str] = {
    "disable": ", graph optimization off",
    "basic": ", basic graph optimization",
    "extended": ", extended graph optimization",
    "all": "",
}
_DEFAULT = RuntimeOptions()


class OrtRuntime(Closing):
    """A model in ONNX Runtime.

    Args:
        source: an `.onnx` or `.ort` file, or the bytes of an ONNX model.
        options: level, provider and threads.
        expose: intermediate values that the first session shows already, so that asking costs no second one.
        folder: where the external data of a model given as bytes lies.

    Raises:
        InputError: ONNX Runtime cannot load it; the cause is ONNX Runtime's.
        MissingDependencyError: this build of ONNX Runtime lacks the execution provider.
    """

    def __init__(
        self,
        source: Path | bytes,
        options: RuntimeOptions = _DEFAULT,
        *,
        expose: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        self._source, self._options, self._folder = source, options, folder
        self._label = str(source) if isinstance(source, Path) else "the model in memory"
        self._is_ort = isinstance(source, Path) and source.suffix.lower() == ".ort"
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._model: Model | None = None
        self._taps: frozenset[str] | None = None
        self._sessions: dict[frozenset[str], Any] = {}
        if options.integers == "exact" and options.provider == "CPU":
            self._make_exact()
        self._provider = provider_named(options.provider)
        self._exposed = frozenset(expose)
        main = self._session(self._exposed)
        self._inputs = tuple(
            spec_of(argument.name, argument.type, argument.shape) for argument in main.get_inputs()
        )
        self._outputs = tuple(
            spec_of(argument.name, argument.type, argument.shape)
            for argument in main.get_outputs()
            if argument.name not in expose
        )

    @classmethod
    def of_model(cls, model: Model, options: RuntimeOptions = _DEFAULT) -> OrtRuntime:
        """The runtime of a model in memory; its weights on disk stay there and are mapped by ONNX Runtime."""
        data, folder = _graph_bytes(model)
        if data is not None:
            return cls(data, options, folder=folder)
        temporary = tempfile.TemporaryDirectory(prefix="onnxport-")
        runtime = cls(model.save(Path(temporary.name, "model.onnx")).path, options)
        runtime._temporary = temporary
        return runtime

    def _make_exact(self) -> None:
        """Replace the model by one that computes the same, whose integer sums no CPU saturates."""
        if isinstance(self._source, Path) and not self._source.is_file():
            return  # opening it says what is wrong
        if not holds_integer_products(self._source):
            return
        # Both read the model, which a float one is spared.
        from onnxport.runtimes.ort import exact_integers, exact_ort_file

        if self._is_ort:
            assert isinstance(self._source, Path)
            self._source = exact_ort_file.with_unsigned_weights(self._source) or self._source
            return
        if (model := self._read()) is None or (exact := exact_integers.with_unsigned_weights(model)) is None:
            return
        data, folder = _graph_bytes(exact)
        if data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="onnxport-")
            self._source = exact.save(Path(self._temporary.name, "model.onnx")).path
            return
        self._model, self._source, self._folder = exact, data, folder

    def _read(self) -> Model | None:
        """The graph, unchecked; None where only ONNX Runtime can say what is wrong with it."""
        import onnx_ir as ir
        from google.protobuf.message import DecodeError

        from onnxport.formats.model import Model
        from onnxport.samples.domain import without_functions

        try:
            if isinstance(self._source, Path):
                return without_functions(Model(ir.load(self._source), self._source))
            # External data lies beside the path that a model in memory would have.
            path = self._folder / "model.onnx" if self._folder is not None else None
            read = ir.from_proto(_proto(self._source))
            if self._folder is not None:
                ir.external_data.set_base_dir(read.graph, self._folder)
            return without_functions(Model(read, path))
        except (ValueError, TypeError, KeyError, AttributeError, DecodeError, ir.serde.SerdeError, OSError):
            return None

    @property
    def name(self) -> str:
        level = "" if self._is_ort else _SAID[self._options.level]
        integers = "" if self._options.integers == "exact" else ", this CPU's integer kernels"
        return f"ONNX Runtime {ort.__version__}, {_short(self._provider)}{level}{integers}"

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._outputs

    @property
    def taps(self) -> frozenset[str]:
        """Every value that a node of the main graph makes; none for an `.ort` file, whose graph is sealed."""
        if self._taps is None:
            self._taps = frozenset() if self._is_ort else _intermediates(self._load_model())
        return self._taps

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        check_feeds(self._inputs, feeds)
        self._check_outputs()
        if not self._exposed.issuperset(taps):
            check_taps(self.taps, taps, self._label)
        session = self._session(self._exposed.union(taps))
        wanted = [spec.name for spec in self._outputs]
        wanted += [name for name in taps if name not in wanted]
        try:
            values = _run(session, wanted, {name: np.asarray(array) for name, array in feeds.items()})
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
            if _OUT_OF_MEMORY.search(str(error)):
                raise MemoryFullError(
                    f"the machine's memory does not hold what {self._label} computes on {shapes}",
                    why=f"ONNX Runtime says: {cause(error)}",
                    fix="give smaller sizes (--shape) or inputs (--inputs DIR), or use a larger machine",
                ) from error
            raise RunError(f"ONNX Runtime cannot run {self._label} on {shapes}", why=cause(error)) from error
        return {name: np.asarray(value) for name, value in zip(wanted, values, strict=True)}

    def _check_outputs(self) -> None:
        for spec in self._outputs:
            if spec.dtype == "bfloat16":
                raise UsageError(
                    f"nothing can be compared with output {spec.name!r} of {self._label}",
                    why="it is bfloat16, in which ONNX Runtime hands out nothing",
                    fix="put a Cast to float32 behind it, or take the artefact unproven with --no-validate",
                )

    def close(self) -> None:
        self._sessions.clear()
        self._model = None
        if self._temporary is not None:
            self._temporary.cleanup()

    def _session(self, shown: frozenset[str]) -> Any:
        """The session that gives `shown` beside the outputs; only the last one with taps stays in memory."""
        if shown not in self._sessions:
            self._sessions = {names: kept for names, kept in self._sessions.items() if names == self._exposed}
            source, folder = (self._with_outputs(shown)) if shown else (self._source, self._folder)
            self._sessions[shown] = self._open(source, folder)
        return self._sessions[shown]

    def _open(self, source: Path | bytes, folder: Path | None) -> Any:
        try:
            return open_session(
                source,
                level=self._options.level,
                threads=self._options.threads,
                provider=self._provider,
                spinning=False,  # threads that spin would starve the other runtime, in a process of its own
                prepacking=stored_bytes(source, folder) <= _LARGE,
                external_data=folder,
                config={"session.load_model_format": "ORT"} if self._is_ort else None,
            )
        except Exception as error:  # see run
            raise self._unloadable(error) from error

    def _unloadable(self, error: Exception) -> InputError:
        """What ONNX Runtime's refusal to load the model means to the user."""
        if newer := _NEWER_OPSET.search(" ".join(str(error).split())):
            opset, known = newer.groups()
            return InputError(
                f"{self._label} has opset {opset}, newer than ONNX Runtime {ort.__version__} knows ({known})",
                fix=f"export it with opset {known} or older",
            )
        if self._is_ort and _NO_ORT_MODEL.search(str(error)):
            return _no_ort_model(Path(self._label))
        fix = ""
        if _UNREGISTERED.search(str(error)):
            fix = "write it with operators that ONNX Runtime has; --no-validate lets a result out unproven"
        return InputError(f"ONNX Runtime cannot load {self._label}", why=cause(error), fix=fix)

    def _load_model(self) -> Model:
        if self._model is None:
            import onnx_ir as ir

            from onnxport.formats.model import Model

            if isinstance(self._source, Path):
                self._model = Model.load(self._source)
            else:
                self._model = Model(ir.from_proto(_proto(self._source)))
        return self._model

    def _with_outputs(self, names: Iterable[str]) -> tuple[bytes, Path | None]:
        """The model with `names` as further outputs. Their types are left to ONNX Runtime, which infers them."""
        import onnx

        data, folder = _graph_bytes(self._load_model())
        if data is None:
            raise InputError(
                f"{self._label} is too large to show intermediate values",
                fix="keep its weights in external data",
            )
        proto = _proto(data)
        present = {output.name for output in proto.graph.output}
        proto.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in sorted(names) if name not in present
        )
        return proto.SerializeToString(), folder or self._folder


def provider_named(wanted: str) -> str:
    """ONNX Runtime's full name of a provider; it would run on the CPU without a word if it lacks the provider."""
    available: list[str] = ort.get_available_providers()
    for name in available:
        if _short(name).lower() == wanted.lower().removesuffix(_PROVIDER.lower()):
            return name
    raise MissingDependencyError(
        f"this ONNX Runtime has no execution provider {wanted!r}",
        why=f"it has {', '.join(map(_short, available))}",
        fix="install the onnxruntime package that is built with it, in place of onnxruntime",
    )


def _run(session: Any, wanted: Sequence[str], feeds: Feeds) -> Sequence[Any]:
    if not any(array.dtype.name == "bfloat16" for array in feeds.values()):
        values: Sequence[Any] = session.run(wanted, feeds)
        return values
    # NumPy has no bfloat16 of its own, and what has lent it one hands over bits.
    given = {name: _bfloat16(array) for name, array in feeds.items()}
    return [value.numpy() for value in session.run_with_ort_values(wanted, given)]


def _bfloat16(array: Array) -> Any:
    if array.dtype.name != "bfloat16":
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = array.copy(order="C").view(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _ONNX_BFLOAT16)


def _short(provider: str) -> str:
    return provider.removesuffix(_PROVIDER)


def _graph_bytes(model: Model) -> tuple[bytes | None, Path | None]:
    """The serialized model and the folder of its external data; no bytes where protobuf could not hold them."""
    import onnx_ir as ir

    external = model.external_files
    if not external:
        return model.to_bytes(), None
    assert model.path is not None, "external data has a file it belongs to"
    data: bytes = ir.to_proto(model.ir).SerializeToString()
    return data, model.path.parent


def _proto(data: bytes) -> Any:
    import onnx

    return onnx.ModelProto.FromString(data)


def _intermediates(model: Model) -> frozenset[str]:
    outputs = {spec.name for spec in model.outputs}
    made = {value.name for node in model.graph for value in node.outputs if value.name}
    return frozenset(made - outputs)


_NEWER_OPSET = re.compile(r"Opset (\d+) is under development.*is till opset (\d+)")
_UNREGISTERED = re.compile(r"is not a registered function/op")
_NO_ORT_MODEL = re.compile(r"ORT model verification failed|Invalid ORT format model")
_OUT_OF_MEMORY = re.compile(r"Failed to allocate memory|bad_alloc|bad allocation")


def _no_ort_model(path: Path) -> InputError:
    """The error for an `.ort` file that ONNX Runtime finds no model in."""
    from onnxport.formats.model import foreign_kind

    with path.open("rb") as file:
        is_ort = file.read(8)[4:] == b"ORTM"
    if is_ort:
        return InputError(f"{path} is truncated or damaged", fix="copy, download or convert it again")
    kind, way_out = foreign_kind(path) or ("", "")
    return InputError(
        f"{path} is not a model in ONNX Runtime format", why=f"it is {kind}" if kind else "", fix=way_out
    )
