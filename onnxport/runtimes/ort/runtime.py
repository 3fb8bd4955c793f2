"""ONNX Runtime, for `.onnx` and `.ort` files and for models in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401  registers the names of 8-bit floats
import numpy as np
import onnxruntime as ort

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError, MissingDependencyError, OnnxportError, UsageError
from onnxport.core.resources import Closing
from onnxport.core.scratch import ScratchFolder
from onnxport.formats.external_data import stored_bytes
from onnxport.formats.numbered_texts import read_texts, to_texts
from onnxport.formats.zipmap import without_zipmaps
from onnxport.runtimes.base import MemoryFullError, RunError, check_feeds, check_taps, format_shapes
from onnxport.runtimes.custom_libraries import libraries
from onnxport.runtimes.options import OrtLevel, RuntimeOptions
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.runtimes.ort.integer_products import holds_integer_products, may_saturate
from onnxport.runtimes.ort.parsing import cause, spec_of

if TYPE_CHECKING:
    from onnxport.formats.model import Model

_PROVIDER = "ExecutionProvider"
# ml_dtypes' name -> TensorProto's number, without an import of onnx.
_PACKED = {
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
}

_LARGE = 256 * 2**20  # bytes of weights, from which a second, prepacked copy costs more than it saves
_LEVEL_NAMES: dict[OrtLevel, str] = {
    "disable": ", graph optimization off",
    "basic": ", basic graph optimization",
    "extended": ", extended graph optimization",
    "all": "",
}
_DEFAULT = RuntimeOptions()


class OrtRuntime(Closing):
    """A model in ONNX Runtime; reads the options `level`, `provider`, `integers` and `threads`.

    Args:
        source: an `.onnx` or `.ort` file, or the bytes of an ONNX model, whose external data lie in `folder`.
        is_exact: whether its integer sums saturate on no CPU already.

    Raises:
        InputError: ONNX Runtime cannot load the model; with ONNX Runtime's message.
        MissingDependencyError: this build of ONNX Runtime lacks the execution provider.
    """

    def __init__(
        self,
        source: Path | bytes,
        options: RuntimeOptions = _DEFAULT,
        *,
        folder: Path | None = None,
        is_exact: bool = False,
    ) -> None:
        self._source, self._options, self._folder = source, options, folder
        self._label = str(source) if isinstance(source, Path) else "the model in memory"
        self._is_ort = isinstance(source, Path) and source.suffix.lower() == ".ort"
        self._temporary: ScratchFolder | None = None
        self._texts: dict[str, tuple[str, ...]] = {}
        self._model: Model | None = None
        self._taps: frozenset[str] | None = None
        self._sessions: dict[frozenset[str], Any] = {}
        if isinstance(source, Path) and not self._is_ort and (data := without_zipmaps(source)) is not None:
            self._source, self._folder = data, source.parent
        if options.integers == "exact" and options.provider == "CPU" and not is_exact:
            self._make_exact()
        self._provider = find_provider(options.provider)
        main = self._session(frozenset())
        if any(not each.shape for each in main.get_inputs()) and self._mend():
            main = self._session(frozenset())
        self.inputs = tuple(spec_of(each.name, each.type, each.shape) for each in main.get_inputs())
        self.outputs = tuple(spec_of(each.name, each.type, each.shape) for each in main.get_outputs())

    @classmethod
    def of_model(
        cls, model: Model, options: RuntimeOptions = _DEFAULT, *, in_place: bool = False
    ) -> OrtRuntime:
        """Load a model in memory; ONNX Runtime maps its external data. Numbered texts are answered as texts.

        Args:
            in_place: whether the model itself may be changed, for a caller that needs it no more.
        """
        noted_outputs = model.graph.outputs
        if is_exact := options.integers == "exact" and options.provider == "CPU":
            model = _with_exact_sums(model, in_place=in_place)
        data, folder = _graph_bytes(model)
        if data is not None:
            runtime = cls(data, options, folder=folder, is_exact=is_exact)
        else:
            temporary = ScratchFolder()
            path = model.save(Path(temporary.name, "model.onnx")).path
            runtime = cls(path, options, is_exact=is_exact)
            runtime._temporary = temporary
        noted = {value.name or "": read_texts(value) for value in noted_outputs}
        runtime._texts = {name: texts for name, texts in noted.items() if texts}
        runtime.outputs = tuple(
            replace(spec, dtype="string") if spec.name in runtime._texts else spec for spec in runtime.outputs
        )
        return runtime

    def _mend(self) -> bool:
        """Replace a file with something wrong in it, as an input that lacks its shape; return whether it was."""
        source = self._source
        if self._is_ort or not isinstance(source, Path):
            return False
        from onnxport.formats.repairs import mended_bytes

        if (data := mended_bytes(source)) is None:
            return False
        self._source, self._folder = data, source.parent
        self._sessions.clear()
        return True

    def _make_exact(self) -> None:
        """Replace the model by an equal one whose integer sums saturate on no CPU."""
        if isinstance(self._source, Path) and not self._source.is_file():
            return  # opening it raises the error
        if not holds_integer_products(self._source):
            return
        # Imported here: both read the model, which a float model does not need.
        from onnxport.runtimes.ort import exact_integers, exact_ort_file

        if self._is_ort:
            assert isinstance(self._source, Path)
            self._source = exact_ort_file.with_unsigned_weights(self._source) or self._source
            return
        if (model := self._read()) is None or (
            exact := exact_integers.with_unsigned_weights(model, in_place=True)
        ) is None:
            return
        data, folder = _graph_bytes(exact)
        if data is None:
            self._temporary = ScratchFolder()
            self._source = exact.save(Path(self._temporary.name, "model.onnx")).path
            return
        self._model, self._source, self._folder = exact, data, folder

    def _read(self) -> Model | None:
        """Return the graph, unchecked; None where it is damaged, which ONNX Runtime will report."""
        import onnx_ir as ir
        from google.protobuf.message import DecodeError

        from onnxport.formats.model import Model
        from onnxport.samples.domain import without_functions

        try:
            if isinstance(self._source, Path):
                return _sorted(without_functions(Model(ir.load(self._source), self._source)))
            return _sorted(without_functions(self._parse(self._source)))
        except (ValueError, TypeError, KeyError, AttributeError, DecodeError, ir.serde.SerdeError, OSError):
            return None

    @property
    def name(self) -> str:
        level = "" if self._is_ort else _LEVEL_NAMES[self._options.level]
        integers = "" if self._options.integers == "exact" else ", this CPU's integer kernels"
        custom = "".join(f", custom operators of {library.name}" for library in libraries())
        return f"ONNX Runtime {ort.__version__}, {_short(self._provider)}{level}{integers}{custom}"

    @property
    def taps(self) -> frozenset[str]:
        """Every value that a node of the main graph computes; none for an `.ort` file, whose graph cannot change."""
        if self._taps is None:
            self._taps = frozenset() if self._is_ort else self._load_model().intermediate_values
        return self._taps

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        check_feeds(self.inputs, feeds)
        self._check_outputs()
        if taps:
            check_taps(self.taps, taps, self._label)
        session = self._session(frozenset(taps))
        wanted = [spec.name for spec in self.outputs]
        wanted += [name for name in taps if name not in wanted]
        try:
            values = _run(session, wanted, {name: np.asarray(array) for name, array in feeds.items()})
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            if _REPAIRED.search(str(error)) and self._mend():
                return self.run(feeds, taps=taps)
            shapes = format_shapes(feeds)
            if _OUT_OF_MEMORY.search(str(error)):
                raise MemoryFullError(
                    f"the machine has too little memory for {self._label} on {shapes}",
                    why=f"ONNX Runtime says: {cause(error)}",
                    fix="give smaller sizes (--shape) or inputs (--inputs DIR), or use a larger machine",
                ) from error
            raise RunError(f"ONNX Runtime cannot run {self._label} on {shapes}", why=cause(error)) from error
        dtypes = {spec.name: spec.dtype for spec in self.outputs}
        answers = {
            name: _unpacked(np.asarray(value), dtypes.get(name, ""))
            for name, value in zip(wanted, values, strict=True)
        }
        return answers | {name: to_texts(answers[name], texts) for name, texts in self._texts.items()}

    def _check_outputs(self) -> None:
        for spec in self.outputs:
            if spec.dtype == "bfloat16":
                raise UsageError(
                    f"output {spec.name!r} of {self._label} cannot be compared",
                    why="it is bfloat16, and ONNX Runtime returns no bfloat16 arrays",
                    fix="add a Cast to float32 after it, or take the artefact unproven with --no-validate",
                )

    def close(self) -> None:
        self._sessions.clear()
        self._model = None
        if self._temporary is not None:
            self._temporary.cleanup()

    def _session(self, taps: frozenset[str]) -> Any:
        """Return the session that returns `taps` beside the outputs; only the last one with taps stays in memory."""
        if taps not in self._sessions:
            self._sessions = {names: each for names, each in self._sessions.items() if not names}
            source, folder = self._with_outputs(taps) if taps else (self._source, self._folder)
            self._sessions[taps] = self._open(source, folder)
        return self._sessions[taps]

    def _open(self, source: Path | bytes, folder: Path | None) -> Any:
        try:
            return open_session(
                source,
                level=self._options.level,
                threads=self._options.threads,
                spinning=False,  # spinning threads would starve the other runtime's process
                prepacking=stored_bytes(source, folder) <= _LARGE,
                external_data=folder,
                **self._place(),
            )
        except OnnxportError:  # about a library of custom operators
            raise
        except Exception as error:  # see run
            raise self._load_error(error) from error

    def _place(self) -> dict[str, Any]:
        """Return the arguments of `open_session` that say where it runs."""
        config = {"session.load_model_format": "ORT"} if self._is_ort else None
        return {"provider": self._provider, "shared_memory": True, "config": config}

    def _load_error(self, error: Exception) -> OnnxportError:
        """Translate ONNX Runtime's refusal to load the model."""
        if newer := _NEWER_OPSET.search(" ".join(str(error).split())):
            opset, known = newer.groups()
            return InputError(
                f"{self._label} has opset {opset}, newer than ONNX Runtime {ort.__version__} knows ({known})",
                fix=f"export it with opset {known} or older",
            )
        if not self._is_ort and _NO_KERNEL.search(str(error)):
            opset = self._load_model().opset
            if opset < _OLDEST_OPSET:
                return InputError(
                    f"{self._label} has opset {opset}, older than {_OLDEST_OPSET}, the oldest that ONNX Runtime runs",
                    fix="export it again with a newer opset",
                )
        if self._is_ort and _NO_ORT_MODEL.search(str(error)):
            return _ort_file_error(Path(self._label))
        if absent := _NO_LOCALE.search(" ".join(str(error).split())):
            return MissingDependencyError(
                f"{self._label} needs the locale {absent[1]}, which this machine does not have",
                why="its StringNormalizer changes letters by the rules of a language",
                fix=f"install it; on Debian and Ubuntu: apt-get install locales, then locale-gen {absent[1]}",
            )
        fix = ""
        if _UNREGISTERED.search(str(error)):
            fix = (
                "give the library that has it, --custom-ops-library FILE; "
                "without one, --no-validate writes a result unproven"
            )
        return InputError(f"ONNX Runtime cannot load {self._label}", why=cause(error), fix=fix)

    def _load_model(self) -> Model:
        if self._model is None:
            from onnxport.formats.model import Model

            if isinstance(self._source, Path):
                self._model = Model.load(self._source)
            else:
                self._model = self._parse(self._source)
        return self._model

    def _parse(self, data: bytes) -> Model:
        """Return the graph of a model in memory, whose external data lie in the folder."""
        import onnx_ir as ir

        from onnxport.formats.model import Model

        read = ir.from_proto(_proto(data))
        if self._folder is None:
            return Model(read)
        ir.external_data.set_base_dir(read.graph, self._folder)
        return Model(read, self._folder / "model.onnx")  # onnx-ir looks for external data beside the path

    def _with_outputs(self, names: Iterable[str]) -> tuple[bytes, Path | None]:
        """Return the model with `names` as further outputs, whose types ONNX Runtime infers, and its folder."""
        import onnx

        data, folder = _graph_bytes(self._load_model())
        if data is None:
            raise InputError(
                f"{self._label} is too large for a copy that returns intermediate values",
                fix="keep its weights in external data",
            )
        proto = _proto(data)
        present = {output.name for output in proto.graph.output}
        proto.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in sorted(names) if name not in present
        )
        return proto.SerializeToString(), folder or self._folder


def find_provider(wanted: str) -> str:
    """Return a provider's full name; MissingDependencyError if the build lacks it (ONNX Runtime would use the CPU)."""
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
    if not any(array.dtype.name in _PACKED for array in feeds.values()):
        values: Sequence[Any] = session.run(wanted, feeds)
        return values
    # ONNX Runtime takes no arrays of ml_dtypes' types.
    inputs = {name: _ort_value(array) for name, array in feeds.items()}
    return [value.numpy() for value in session.run_with_ort_values(wanted, inputs)]


def _ort_value(array: Array) -> Any:
    if array.dtype.name not in _PACKED:
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = array.copy(order="C").view(f"uint{8 * array.itemsize}")
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _PACKED[array.dtype.name])


def _unpacked(value: Array, dtype: str) -> Array:
    """Return an answer in its own type: ONNX Runtime returns the bits of 8-bit floats."""
    return value.view(dtype) if dtype.startswith("float8") and value.dtype == np.uint8 else value


def _with_exact_sums(model: Model, *, in_place: bool) -> Model:
    """Return an equal model whose integer sums saturate on no CPU; itself where no sum does, or changed in place."""
    nodes = (node for graph in model.ir.graphs() for node in graph)
    if not model.ir.functions and not any(may_saturate(node.domain, node.op_type) for node in nodes):
        return model
    # Imported here: a float model needs neither.
    from onnxport.runtimes.ort.exact_integers import with_unsigned_weights
    from onnxport.samples.domain import without_functions

    return with_unsigned_weights(without_functions(model), in_place=in_place) or model


def _sorted(model: Model) -> Model:
    """Return the model with each node behind those that it reads, as onnx-ir expects; ONNX Runtime takes any order."""
    model.graph.sort()
    return model


def _short(provider: str) -> str:
    return provider.removesuffix(_PROVIDER)


def _graph_bytes(model: Model) -> tuple[bytes | None, Path | None]:
    """Return the serialized model and the folder of its external data; no bytes above protobuf's limit."""
    import onnx_ir as ir

    external = model.external_files
    if not external:
        return model.to_bytes(), None
    data: bytes = ir.to_proto(model.ir).SerializeToString()
    # A changed copy has no file, and still its source's data, which quantization keeps in one file.
    return data, (external[0] if model.path is None else model.path).parent


def _proto(data: bytes) -> Any:
    import onnx

    return onnx.ModelProto.FromString(data)


_NEWER_OPSET = re.compile(r"Opset (\d+) is under development.*is till opset (\d+)")
_NO_KERNEL = re.compile(r"Could not find an implementation for")
_OLDEST_OPSET = 7
_UNREGISTERED = re.compile(r"is not a registered function/op")
_NO_ORT_MODEL = re.compile(r"ORT model verification failed|Invalid ORT format model")
_NO_LOCALE = re.compile(r"Failed to construct locale with name:([\w.@-]+)")
# What is wrong with a file, where only a run shows it (formats/repairs.py).
_REPAIRED = re.compile("block_size must be 0 for per-tensor quantization")
_OUT_OF_MEMORY = re.compile(r"Failed to allocate memory|bad_alloc|bad allocation")


def _ort_file_error(path: Path) -> InputError:
    """Return the error for an `.ort` file in which ONNX Runtime finds no model."""
    from onnxport.formats.model import foreign_kind

    with path.open("rb") as file:
        is_ort = file.read(8)[4:] == b"ORTM"
    if is_ort:
        return InputError(f"{path} is truncated or damaged", fix="copy, download or convert it again")
    kind, fix = foreign_kind(path) or ("", "")
    return InputError(
        f"{path} is not a model in ONNX Runtime format", why=f"it is {kind}" if kind else "", fix=fix
    )
