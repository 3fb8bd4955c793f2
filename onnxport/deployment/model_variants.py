"""A child process that makes variants of the model: as ONNX Runtime loads it, and as our optimizer changes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from onnxport.core.child_process import Child
from onnxport.core.errors import InputError, MachineError
from onnxport.core.resources import Closing
from onnxport.formats.input_shapes import GivenShape
from onnxport.runtimes.custom_libraries import writable

_PATIENCE = 60.0  # seconds for one variant; a simplified copy of 30 MB takes five
_SIZES = 4  # the number of proposals for open dimensions that are tried
_LARGE = 2**30  # bytes; above, weights go to a file beside the graph: protobuf holds 2 GB


class ModelVariants(Closing):
    """The parent's side; each method raises what the child's method of that name raises, and ChildBug.

    Args:
        folder: the only one that the children write to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: Child | None = None
        self._probes: set[Child] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def start_probe(self, target: str, *, purpose: str, timeout: float, patience: str) -> Iterator[Child]:
        """Start a child process for a probe, from any thread; `close` ends it at the latest."""
        with Child(
            target, purpose=purpose, timeout=timeout, patience=patience, writes=writable(self._folder)
        ) as child:
            with self._lock:
                self._probes.add(child)
                if self._is_closed:
                    child.kill()
            try:
                yield child
            finally:
                with self._lock:
                    self._probes.discard(child)

    def providers(self) -> frozenset[str]:
        found: frozenset[str] = self._call("providers")
        return found

    def load(self, path: Path, weight_bytes: int, to: Path) -> None:
        self._call("load", path, weight_bytes, to)

    def change(self, path: Path, options: Mapping[str, Any], to: Path) -> None:
        self._call("change", path, dict(options), to)

    def sizes(self, path: Path, given: Mapping[str, GivenShape]) -> dict[str, tuple[int, ...]] | None:
        found: dict[str, tuple[int, ...]] | None = self._call("sizes", path, dict(given))
        return found

    def close(self) -> None:
        self._end()
        with self._lock:
            self._is_closed = True
            for child in self._probes:
                child.kill()

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _call(self, method: str, *arguments: object) -> Any:
        if self._child is None:
            self._child = Child(
                f"{__name__}:VariantWorker",
                purpose="the optimizer",
                timeout=_PATIENCE,
                writes=writable(self._folder),
            )
        try:
            return self._child.call(method, *arguments)
        except MachineError:
            self._end()
            raise


class VariantWorker:
    """The child's side."""

    def providers(self) -> frozenset[str]:
        """Return the execution providers of the installed ONNX Runtime."""
        import onnxruntime

        return frozenset(onnxruntime.get_available_providers())

    def load(self, path: Path, weight_bytes: int, to: Path) -> None:
        """Write the model after ONNX Runtime's basic optimizations, which its providers get (InputError)."""
        from onnxport.deployment.probes.ort import REFUSALS
        from onnxport.runtimes.ort.inference_session import open_session

        try:
            open_session(
                path,
                level="basic",
                threads=1,
                prepacking=False,
                optimized=to,
                optimized_weights=to.name + ".data" if weight_bytes > _LARGE else "",
            )
        except REFUSALS as error:
            raise InputError("ONNX Runtime cannot load it", why=" ".join(str(error).split())[:300]) from error

    def change(self, path: Path, options: dict[str, Any], to: Path) -> None:
        """Save the model as `onnxport optimize` with `options` changes it (OnnxportError)."""
        from onnxport.formats.model import Model
        from onnxport.optimizers.optimization import optimize
        from onnxport.optimizers.params import OptimizeParams

        params = OptimizeParams.model_validate(options)
        model = Model.load(path)
        done = optimize(model, params, to.parent, (), equivalence=None, phase=lambda _: nullcontext())
        done.model.save(to, model)

    def sizes(self, path: Path, given: dict[str, GivenShape]) -> dict[str, tuple[int, ...]] | None:
        """Return shapes of the open inputs with which the model runs, or None; OnnxportError if it cannot be loaded."""
        from onnxport.core.errors import OnnxportError
        from onnxport.formats.input_shapes import apply_shapes
        from onnxport.formats.model import Model
        from onnxport.runtimes import load
        from onnxport.samples.domain import domains
        from onnxport.samples.generator import generate
        from onnxport.samples.sizes import OpenSizes

        model = Model.load(path)
        known, is_open = domains(model), {spec.name for spec in model.inputs if not spec.is_static}
        proposals = OpenSizes(model.inputs, apply_shapes(model.inputs, given)).proposals(1)
        with load(path) as runtime:
            for shapes, _ in zip(proposals, range(_SIZES), strict=False):
                inputs = {spec.name: (spec, shapes[spec.name]) for spec in model.inputs}
                try:
                    runtime.run(generate(inputs, known, kind="image", seed=0, index=0))
                except OnnxportError:
                    continue
                return {name: shape for name, shape in shapes.items() if name in is_open}
        return None
