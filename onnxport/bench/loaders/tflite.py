"""LiteRT: `Interpreter.invoke()` with XNNPACK or the built-in kernels. Keys are the numbers of tensors."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from onnxport.bench.loaders.base import Chosen, Port, Run
from onnxport.core.errors import InputError


def require() -> None:
    importlib.import_module("ai_edge_litert.interpreter")


class TfliteModel:
    def __init__(self, path: str, settings: Chosen) -> None:
        from ai_edge_litert import __version__
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        self._path = path
        plain = settings.get("provider") == "cpu"
        kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else OpResolverType.AUTO
        try:
            self._interpreter = Interpreter(
                path, num_threads=settings.get("threads"), experimental_op_resolver_type=kernels
            )
        except (ValueError, RuntimeError) as error:
            raise _refusal(f"LiteRT cannot load {path}", error) from error
        self.ran_on = f"LiteRT {__version__}, {'built-in kernels' if plain else 'XNNPACK'}"
        self.inputs = [_port(each) for each in self._interpreter.get_input_details()]
        self.outputs = [_port(each) for each in self._interpreter.get_output_details()]

    def feed(self, feeds: Mapping[str, Any]) -> Run:
        self._feeds = {int(key): array for key, array in feeds.items()}
        sizes = {each["index"]: tuple(each["shape"]) for each in self._interpreter.get_input_details()}
        for index, array in self._feeds.items():
            if array.shape != sizes[index]:
                self._interpreter.resize_tensor_input(index, array.shape)
        self._interpreter.allocate_tensors()
        self._set()
        run: Run = self._interpreter.invoke
        return run

    def answers(self) -> dict[str, Any]:
        """See Loaded; a model with a state starts anew."""
        self._interpreter.reset_all_variables()
        self._set()
        self._interpreter.invoke()
        return {key: self._value(int(key)) for key, _, _ in self.outputs}

    def refusal(self, error: Exception) -> InputError:
        return _refusal(f"LiteRT cannot run {self._path}", error)

    def _set(self) -> None:
        for index, array in self._feeds.items():
            self._interpreter.set_tensor(index, array)

    def _value(self, index: int) -> Any:
        """Return a tensor's value; the interpreter itself returns no tensor without elements."""
        import numpy

        details = self._interpreter._get_tensor_details(index, 0)
        if 0 in details["shape"]:
            return numpy.zeros(details["shape"], details["dtype"])
        return self._interpreter.get_tensor(index)


load = TfliteModel


def _port(details: Mapping[str, Any]) -> Port:
    import numpy

    shape = tuple(int(size) for size in details["shape_signature"])
    return str(details["index"]), numpy.dtype(details["dtype"]).name, shape


def _refusal(what: str, error: Exception) -> InputError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return InputError(what, why="; ".join(dict.fromkeys(lines))[:400] or type(error).__name__)
