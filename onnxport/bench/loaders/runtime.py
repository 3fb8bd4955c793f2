"""Any other runtime of `runtimes/registry.py`: other engines, and those of plugins.

`Runtime.run` is timed, with the passing of NumPy arrays; the memory includes this package's imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxport.bench.loaders.base import Chosen, Port, Run
from onnxport.core.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from onnxport.runtimes.base import Runtime


class KindLoader:
    def __init__(self, name: str) -> None:
        self._name = name

    def require(self) -> None:
        from onnxport.runtimes import registry

        kind = registry.find(self._name)
        if kind is None:
            raise MissingDependencyError(f"there is no runtime {self._name!r}")
        self._factory: Callable[..., Runtime] = kind.load()

    def load(self, path: str, settings: Chosen) -> KindModel:
        from onnxport.runtimes.options import THREADS, RuntimeOptions

        options = RuntimeOptions(runtime=self._name, threads=settings.get("threads") or THREADS)
        return KindModel(self._factory(Path(path), options), path)


class KindModel:
    def __init__(self, runtime: Runtime, path: str) -> None:
        self._runtime, self._path, self.ran_on = runtime, path, runtime.name
        self.remarks: Sequence[str] = getattr(runtime, "remarks", ())  # notes for the report
        self.inputs: Sequence[Port] = [(spec.name, spec.dtype, spec.shape) for spec in runtime.inputs]
        self.outputs: Sequence[Port] = [(spec.name, spec.dtype, spec.shape) for spec in runtime.outputs]

    def feed(self, feeds: Mapping[str, Any]) -> Run:
        self._feeds = dict(feeds)
        if (prepare := getattr(self._runtime, "prepare", None)) is not None:
            prepare(self._feeds)
        return partial(self._runtime.run, self._feeds)

    def answers(self) -> dict[str, Any]:
        return self._runtime.run(self._feeds)

    def refusal(self, error: Exception) -> InputError:
        """See Loaded; for exceptions of plugins, other runtimes raise their own errors."""
        return InputError(f"{self.ran_on} cannot run {self._path}", why=" ".join(str(error).split())[:300])
