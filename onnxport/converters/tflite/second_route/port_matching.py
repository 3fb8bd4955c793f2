"""Completes a `.tflite` of another converter with our manifest: finds the source's port for each of its tensors.

Converters rename inputs and outputs, reorder them and move channels last. Names and shapes narrow the choice; if
several remain (a square image), the results on one set of inputs decide. Runs in a child process
(core/child_process.py): foreign files can crash an interpreter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from onnxport.converters.result import Compiled, custom_names
from onnxport.converters.tflite.load_check import check_runs, count_operators
from onnxport.core.arrays import Array
from onnxport.core.errors import CannotConvertError, OnnxportError
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.input_shapes import apply_shapes
from onnxport.formats.manifest import KEY, Manifest, Port
from onnxport.formats.model import Model
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.samples.domain import domains, without_functions
from onnxport.samples.generator import generate
from onnxport.samples.sizes import OpenSizes

Permutation = tuple[int, ...]
# Input -> the index of its tensor in the file, and the order of its axes there.
Assignment = Mapping[str, tuple[int, Permutation]]

_MOST_ASSIGNMENTS = 16
_MOST_SIZES = 24
_LARGEST_FILE = 2**31 - 1  # of a flatbuffer
_DOES_NOT_RUN = "onnx2tf wrote a file that LiteRT does not run"


class Matcher:
    """The child's side; made once per child."""

    def match(self, source: Path, made: Path, output: Path, manifest: Manifest) -> Compiled:
        """Write `made` with the completed manifest to `output`.

        Raises:
            CannotConvertError: no runtime loads it, or its inputs and outputs are not the source's.
        """
        try:
            counts = count_operators(made)
        except (struct.error, IndexError, TypeError, ValueError) as error:
            raise CannotConvertError("onnx2tf wrote a file that is not a TFLite model") from error
        if foreign := custom_names(counts):
            raise CannotConvertError("onnx2tf wrote operators that no runtime knows", why=", ".join(foreign))
        try:
            check_runs(made)
        except CannotConvertError as error:
            why = error.refusals[0].why if error.refusals else error.why
            raise CannotConvertError(_DOES_NOT_RUN, why=why) from error
        model = without_functions(Model.load(source))
        _embed(made, output, _complete(model, made, manifest))
        return Compiled(counts)


def _embed(made: Path, output: Path, manifest: Manifest) -> None:
    """Write the file `made` with `manifest` in its metadata to `output`."""
    if made.stat().st_size > _LARGEST_FILE:
        raise CannotConvertError(
            f"{made.name} is too large for our manifest", why="a flatbuffer ends at 2 GB"
        )
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(made.read_bytes(), 0))
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = np.frombuffer(manifest.to_json().encode(), np.uint8)
    entry.name, entry.buffer = KEY, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    builder = schema.flatbuffers.Builder(made.stat().st_size)
    builder.Finish(model.Pack(builder), b"TFL3")
    output.write_bytes(builder.Output())


def _complete(model: Model, made: Path, manifest: Manifest) -> Manifest:
    file = _File(made)
    if len(model.inputs) != len(file.inputs) or len(model.outputs) != len(file.outputs):
        raise CannotConvertError(
            "onnx2tf changed the model's signature",
            why=f"{len(file.inputs)} inputs and {len(file.outputs)} outputs, "
            f"where the model has {len(model.inputs)} and {len(model.outputs)}",
        )
    feeds, expected = _reference_run(model, file)
    assignments = islice(_assignments(model.inputs, feeds, file), _MOST_ASSIGNMENTS)
    runs = ((assignment, file.run(feeds, assignment)) for assignment in assignments)
    assignment, results = min(runs, key=lambda run: _error(expected, run[1], file))
    specs = {spec.name: spec for spec in model.outputs}
    matches = _match_outputs(expected, results, file)
    outputs = tuple(_port(specs[name], file.outputs[index], order) for name, index, order, _ in matches)
    placed = ((spec, *assignment[spec.name]) for spec in model.inputs)
    inputs = tuple(_port(spec, file.inputs[index], order) for spec, index, order in placed)
    return replace(manifest, inputs=inputs, outputs=outputs)


class _File:
    """A file's inputs and outputs in its own order: (name, dims), None for open dims."""

    def __init__(self, path: Path) -> None:
        self._interpreter = Interpreter(model_path=str(path), num_threads=2)
        self._details = self._interpreter.get_input_details(), self._interpreter.get_output_details()
        self.inputs, self.outputs = ([self._port(detail) for detail in each] for each in self._details)
        if self._interpreter.get_signature_list():
            self._read_signature_names(path)

    @staticmethod
    def _port(detail: Mapping[str, Any]) -> tuple[str, tuple[int | None, ...]]:
        signature = np.atleast_1d(detail["shape_signature"]) if len(detail["shape"]) else ()
        return detail["name"], tuple(None if size < 0 else int(size) for size in signature)

    def _read_signature_names(self, path: Path) -> None:
        """Replace the tensors' names by the signature's, which readers of the file use (TfliteRuntime does)."""
        model = schema.Model.GetRootAs(np.memmap(path, np.uint8, mode="r"), 0)
        signature = model.SignatureDefs(0)
        for ports, details, count, entry in (
            (self.inputs, self._details[0], signature.InputsLength(), signature.Inputs),
            (self.outputs, self._details[1], signature.OutputsLength(), signature.Outputs),
        ):
            names = {entry(i).TensorIndex(): entry(i).Name().decode() for i in range(count)}
            for place, detail in enumerate(details):
                ports[place] = names.get(detail["index"], ports[place][0]), ports[place][1]

    def run(self, feeds: Mapping[str, Array], assignment: Assignment) -> list[Array] | None:
        """Return the results in the file's order; None if it does not run on these shapes."""
        details = self._details[0]
        operands = [(details[at], feeds[name].transpose(order)) for name, (at, order) in assignment.items()]
        try:
            for detail, array in operands:
                self._interpreter.resize_tensor_input(detail["index"], array.shape)
            self._interpreter.allocate_tensors()
            for detail, array in operands:
                self._interpreter.set_tensor(detail["index"], array.astype(detail["dtype"], order="C"))
            self._interpreter.invoke()
            return [np.array(self._interpreter.get_tensor(detail["index"])) for detail in self._details[1]]
        except (RuntimeError, ValueError):
            return None


def _reference_run(model: Model, file: _File) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return one set of inputs of a size that may suit both sides, and ONNX Runtime's results."""
    source = model.to_bytes() or model.path
    assert source is not None, "a model without bytes has a file"
    session = open_session(source)
    names = [spec.name for spec in model.outputs]
    sizes = OpenSizes(model.inputs, apply_shapes(model.inputs, {}))
    known = domains(model)
    for shapes in islice(sizes.proposals(1), _MOST_SIZES):
        inputs = {spec.name: (spec, shapes[spec.name]) for spec in model.inputs}
        feeds = generate(inputs, known, kind="normal", seed=0, index=0)
        if next(_assignments(model.inputs, feeds, file), None) is None:
            continue
        try:
            return feeds, dict(zip(names, session.run(names, feeds), strict=True))
        except Exception:  # ONNX Runtime's exceptions have no base; the model does not run at this size
            continue
    offered = ", ".join(str(TensorSpec(name, "", dims)) for name, dims in file.inputs)
    raise CannotConvertError("onnx2tf changed the model's inputs", why=f"they are {offered} in its file")


def _assignments(
    specs: Sequence[TensorSpec], feeds: Mapping[str, Array], file: _File
) -> Iterator[Assignment]:
    """Yield the possible assignments of inputs to tensors, the likeliest first: by name, else by position."""
    by_name = {name: place for place, (name, _) in enumerate(file.inputs)}
    unnamed = [place for name, place in by_name.items() if name not in feeds]
    choices = [
        [
            (place, order)
            for place in ([by_name[spec.name]] if spec.name in by_name else unnamed)
            for order in _orders(feeds[spec.name].shape, file.inputs[place][1])
        ]
        for spec in specs
    ]
    for chosen in product(*choices):
        if len({place for place, _ in chosen}) == len(chosen):
            yield dict(zip((spec.name for spec in specs), chosen, strict=True))


def _orders(source: Sequence[int], target: Sequence[int | None]) -> list[Permutation]:
    """List the orders of axes in which `source` has the dims of `target`: unchanged first, then channels last."""
    if len(source) != len(target):
        return []
    axes = tuple(range(len(source)))
    usual = [axes, (0, *axes[2:], 1) if len(axes) > 2 else axes]
    fitting = [
        order
        for order in permutations(axes)
        if all(dim in (None, source[axis]) for axis, dim in zip(order, target, strict=True))
    ]
    return sorted(fitting, key=lambda order: usual.index(order) if order in usual else len(usual))


def _match_outputs(
    expected: Mapping[str, Array], results: Sequence[Array] | None, file: _File
) -> list[tuple[str, int, Permutation, float]]:
    """Return for each output its name, the index of its tensor, the order of the axes, and the difference."""
    if results is None:
        raise CannotConvertError(_DOES_NOT_RUN, why="at none of the sizes tried")
    names = [name for name, _ in file.outputs]
    unnamed = [place for place, name in enumerate(names) if name not in expected]
    found: list[tuple[str, int, Permutation, float]] = []
    for name, value in expected.items():
        places = [names.index(name)] if name in names else unnamed
        taken = {place for _, place, _, _ in found}
        matches = [
            (name, place, order, _difference(value.transpose(order), results[place]))
            for place in places
            if place not in taken
            for order in _orders(value.shape, results[place].shape)
        ]
        if not matches:
            shapes = ", ".join(str(list(results[place].shape)) for place in places)
            why = f"from {list(value.shape)} to {shapes}"
            raise CannotConvertError(f"onnx2tf changed the output {name!r}", why=why)
        found.append(min(matches, key=lambda match: match[3]))  # the first of equals is the likeliest
    return found


def _error(expected: Mapping[str, Array], results: Sequence[Array] | None, file: _File) -> float:
    try:
        matches = _match_outputs(expected, results, file)
    except OnnxportError:
        return np.inf
    return max((difference for *_, difference in matches), default=0.0)


def _difference(expected: Array, actual: Array) -> float:
    """Return the largest difference relative to the largest value; infinite if only one side is not finite."""
    if expected.dtype == object:
        return 0.0 if np.array_equal(expected, actual) else np.inf
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    scale = float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a))) or 1.0
    with np.errstate(invalid="ignore"):
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0)) / scale


def _port(spec: TensorSpec, tensor: tuple[str, tuple[int | None, ...]], order: Permutation) -> Port:
    name, shape = tensor
    permutation = () if order == tuple(range(len(order))) else order
    return Port(spec.name, name, spec.dtype, shape, permutation)
