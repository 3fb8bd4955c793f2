"""PaddlePaddle: inference models, by paddle2onnx in an environment of its own, where PaddlePaddle answers too."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from onnxport.core import environments
from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import CannotConvertError, InputError, UsageError
from onnxport.exporters.framework import Exported
from onnxport.exporters.paddle.environment import Environment, Program, Worker
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import TensorSpec

_WEIGHTS = ".pdiparams"
_GRAPHS = (".json", ".pdmodel")


def load(source: Source, params: ExportParams) -> PaddleModel:
    """Load a folder with inference.json or .pdmodel and .pdiparams, or the first of the two files.

    Raises:
        MissingDependencyError: no paddle2onnx, or none with PaddlePaddle.
        InputError: a file is missing, or PaddlePaddle cannot load it.
        UsageError: options without effect here.
    """
    for name in ("input", "dynamic"):
        if getattr(params, name):
            raise UsageError(
                f"--{name} has no effect on a PaddlePaddle model",
                why="its file declares its inputs",
                fix="leave it out",
            )
    program = _program(source)
    return PaddleModel(source, program, params.output_names, Environment.find(params.paddle2onnx))


def _program(source: Source) -> Program:
    graphs = [file for file in source.files if file.suffix in _GRAPHS]
    weights = [file for file in source.files if file.suffix == _WEIGHTS]
    if not weights:
        raise InputError(
            f"{source.name} has no weights", why=f"there is no {_WEIGHTS} file beside it", fix="put it there"
        )
    for graph in graphs:
        beside = graph.with_suffix(_WEIGHTS)
        if beside in weights:
            return Program(graph, beside)
    raise InputError(f"{source.name} has no program of the name of {weights[0].name}")


class PaddleModel:
    """A PaddlePaddle inference model as a Framework (framework.py)."""

    kind = "paddle"
    has_other_kernels = True

    def __init__(
        self, source: Source, program: Program, names: Sequence[str], environment: Environment
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="paddle-"))
        self._environment, self._folder = environment, folder
        self._program = Program(
            *(Path(shutil.copy(file, folder)) for file in (program.graph, program.weights))
        )
        self._worker = Worker(environment, self._program, folder)
        described = self._worker.described
        self.name = f"PaddlePaddle {described['version']}, CPU"
        self.inputs = tuple(map(_spec, described["inputs"]))
        self.outputs = _rename_inputs(tuple(map(_spec, described["outputs"])), names, source)

    def export(self, output: Path, opset: int | None) -> Exported:
        made = onnx.load(self._environment.convert(self._program, self._folder, opset))
        _name_outputs(made, [spec.name for spec in self.outputs])
        onnx.save(made, output)
        self._check(output)
        return Exported(output, facts={"exporter": f"paddle2onnx {self._environment.version}"})

    def _check(self, path: Path) -> None:
        """Refuse files that ONNX Runtime cannot load (CannotConvertError): paddle2onnx reports success for these."""
        from onnxport.runtimes.ort.inference_session import open_session

        try:
            open_session(path)
        except Exception as error:  # its classes have no common base but this
            raise CannotConvertError(
                f"ONNX Runtime cannot load the file that paddle2onnx {self._environment.version} wrote",
                why=environments.error_line(str(error)),
                fix="try another version of paddle2onnx",
            ) from error

    def run(self, feeds: Feeds, *, other_kernels: bool = False) -> dict[str, Array]:
        answers = self._worker.run([feeds[spec.name] for spec in self.inputs], other=other_kernels)
        return {spec.name: answer for spec, answer in zip(self.outputs, answers, strict=True)}


def _spec(said: dict[str, Any]) -> TensorSpec:
    return TensorSpec(said["name"], said["dtype"], tuple(None if dim < 0 else dim for dim in said["shape"]))


def _rename_inputs(
    specs: tuple[TensorSpec, ...], names: Sequence[str], source: Source
) -> tuple[TensorSpec, ...]:
    if names and len(names) != len(specs):
        raise UsageError(
            f"{len(names)} names for the {len(specs)} outputs of {source.name}",
            fix="give one --output-names for each",
        )
    chosen = names or [spec.name for spec in specs]
    return tuple(TensorSpec(name, spec.dtype, spec.shape) for name, spec in zip(chosen, specs, strict=True))


def _name_outputs(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """Give the outputs PaddlePaddle's names; paddle2onnx numbers them."""
    new = {given.name: name for given, name in zip(model.graph.output, names, strict=True)}
    taken = set(new.values()) - set(new)
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [
                new.get(value) or (f"{value}/inner" if value in taken else value) for value in values
            ]
    for given in model.graph.output:
        given.name = new[given.name]
