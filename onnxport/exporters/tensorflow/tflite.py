"""TFLite files: LiteRT's interpreter answers, under the names of the file's signature."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from ai_edge_litert import schema_py_generated as schema

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import CannotConvertError, UsageError
from onnxport.exporters.framework import Exported
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.exporters.tensorflow.signatures import DeclaredInput, bind_inputs
from onnxport.exporters.tensorflow.tflite_files import write_convertible
from onnxport.formats.artifact import TensorSpec
from onnxport.runtimes.litert import TfliteRuntime
from onnxport.runtimes.options import RuntimeOptions

# Operators without a form in ONNX -> what they do.
_REFUSED = {
    "VAR_HANDLE": "keep a state from one run to the next, ONNX does not",
    "CALL_ONCE": "run a graph before the first run, ONNX does not",
}


class TfliteModel:
    """See Framework; our manifest in the file is not read.

    Raises:
        InputError: damaged, or LiteRT cannot load it.
        CannotConvertError: it keeps a state from one run to the next.
    """

    kind = "tensorflow"

    def __init__(self, source: Source, params: ExportParams) -> None:
        self._path = Path(source.name)
        self._runtime = TfliteRuntime(self._path, noted=False)
        self._plain: TfliteRuntime | None = None
        if self._runtime.remarks:
            raise CannotConvertError(f"{self._path} cannot be exported", why=self._runtime.remarks[0])
        file = schema.Model.GetRootAs(self._path.read_bytes(), 0)
        _refuse_operators(file, self._path)
        # MediaPipe's operators, which no framework's converter writes, are in XNNPACK alone.
        self.has_other_kernels = not any(
            file.OperatorCodes(index).CustomCode() for index in range(file.OperatorCodesLength())
        )
        declared = [DeclaredInput(spec.name, spec.dtype, _sizes(spec)) for spec in self._runtime.inputs]
        self.name = self._runtime.name
        self.inputs = bind_inputs(declared, params, source.name)
        self.outputs = tuple(self._renamed(params))

    def _renamed(self, params: ExportParams) -> list[TensorSpec]:
        found = self._runtime.outputs
        names = params.output_names or tuple(spec.name for spec in found)
        if len(names) != len(found):
            raise UsageError(
                f"{self._path} gives {len(found)} outputs, --output-names names {len(names)}",
                fix=f"name each of {', '.join(spec.name for spec in found)}",
            )
        return [replace(spec, name=name) for name, spec in zip(names, found, strict=True)]

    def export(self, output: Path, opset: int | None) -> Exported:
        """See Framework.export."""
        from onnxport.exporters.tensorflow.conversion import collect_refusals, convert, set_ports
        from onnxport.exporters.tensorflow.library import EXPORTER

        tensors = self._runtime.tensors
        names = {tensors[spec.name]: spec.name for spec in self.inputs}
        own = [spec.name for spec in self._runtime.outputs]
        names |= {tensors[name]: spec.name for name, spec in zip(own, self.outputs, strict=True)}
        with collect_refusals(str(self._path)) as refusals, TemporaryDirectory() as folder:
            convertible = write_convertible(self._path, Path(folder, "convertible.tflite"))
            model = convert(None, opset, refusals, tflite_path=str(convertible), tensors_to_rename=names)
        set_ports(model, self.inputs, self.outputs)
        onnx.save(model, output)
        return Exported(output, facts={"exporter": EXPORTER})

    def run(self, feeds: Feeds, *, other_kernels: bool = False) -> dict[str, Array]:
        """See Framework.run; other kernels are the interpreter's own, without XNNPACK."""
        if other_kernels and self._plain is None:
            self._plain = TfliteRuntime(self._path, RuntimeOptions(delegate="none"), noted=False)
        runtime = self._plain if other_kernels and self._plain is not None else self._runtime
        answers = runtime.run(feeds)
        own = [spec.name for spec in runtime.outputs]
        return {spec.name: answers[name] for name, spec in zip(own, self.outputs, strict=True)}


def load(source: Source, params: ExportParams) -> TfliteModel:
    """Load the model in a `.tflite` file."""
    return TfliteModel(source, params)


def _refuse_operators(model: schema.Model, path: Path) -> None:
    """Raise CannotConvertError for operators on which tf2onnx fails without a word."""
    names = {getattr(schema.BuiltinOperator, name): name for name in _REFUSED}
    graph = model.Subgraphs(0)
    codes = (
        model.OperatorCodes(graph.Operators(place).OpcodeIndex()) for place in range(graph.OperatorsLength())
    )
    # Old files have the first 127 codes in another field.
    found = Counter(names.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), "") for code in codes)
    refused = [name for name in _REFUSED if found[name]]
    if refused:
        raise CannotConvertError(
            f"{path} cannot be exported",
            why=f"{found[refused[0]]} {refused[0]} nodes {_REFUSED[refused[0]]}",
            fix="export the model that this file was made from",
        )


def _sizes(spec: TensorSpec) -> tuple[int | None, ...]:
    return tuple(dim if isinstance(dim, int) else None for dim in spec.shape)
