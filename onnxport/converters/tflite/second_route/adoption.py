"""Takes in a `.tflite` that another converter made: finds which of its tensors is which, and says so in our manifest.

Converters rename inputs and outputs, reorder them and move channels last. Names and shapes say what may belong
together; where they leave a choice (a square image), the answers to one set of inputs decide. Runs in a child process
(isolation.Child): what others write can take an interpreter down.
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

from onnxport.converters.tflite.load_check import check_runs, operators
from onnxport.converters.tflite.metadata.manifest import embed
from onnxport.converters.tflite.result import Compiled, custom_names
from onnxport.core.arrays import Array
from onnxport.core.errors import CannotConvertError, OnnxportError
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.input_shapes import apply_shapes
from onnxport.formats.manifest import Manifest, Port
from onnxport.formats.model import Model
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.samples.domain import domains, without_functions
from onnxport.samples.generator import generate
from onnxport.samples.sizes import OpenSizes

Permutation = tuple[int, ...]
Way = Mapping[str, tuple[int, Permutation]]  # input -> the place of its tensor, how its axes lie there

_MOST_WAYS = 16
_MOST_SIZES = 24


class Adopter:
    """Answers `adopt`; made once per child."""

    def adopt(self, source: Path, made: Path, output: Path, manifest: Manifest) -> Compiled:
        """Writes `made` with the completed manifest to `output`.

        Raises:
            CannotConvertError: no runtime loads it, or its inputs and outputs are not the source's.
        """
        try:
            counts = operators(made)
        except (struct.error, IndexError, TypeError, ValueError) as error:
            raise CannotConvertError("onnx2tf wrote a file that is none of TFLite's") from error
        if foreign := custom_names(counts):
            raise CannotConvertError("onnx2tf wrote operators that no runtime knows", why=", ".join(foreign))
        try:
            check_runs(made)
        except CannotConvertError as error:
            why = error.refusals[0].why if error.refusals else error.why
            raise CannotConvertError("onnx2tf wrote a file that LiteRT does not run", why=why) from error
        model = without_functions(Model.load(source))
        embed(made, output, _complete(model, made, manifest))
        return Compiled(counts)


def _complete(model: Model, made: Path, manifest: Manifest) -> Manifest:
    ends = _Ends(made)
    if len(model.inputs) != len(ends.inputs) or len(model.outputs) != len(ends.outputs):
        raise CannotConvertError(
            "onnx2tf changed the model's signature",
            why=f"{len(ends.inputs)} inputs and {len(ends.outputs)} outputs, "
            f"where the model has {len(model.inputs)} and {len(model.outputs)}",
        )
    feeds, expected = _asked(model, ends)
    way, answers = min(
        ((way, ends.run(feeds, way)) for way in islice(_ways(model.inputs, feeds, ends), _MOST_WAYS)),
        key=lambda asked: _error(expected, asked[1], ends),
    )
    outputs = []
    for name, place, order in _outputs(expected, answers, ends):
        spec = next(spec for spec in model.outputs if spec.name == name)
        outputs.append(_port(spec, ends.outputs[place], order))
    inputs = [_port(spec, ends.inputs[way[spec.name][0]], way[spec.name][1]) for spec in model.inputs]
    return replace(manifest, inputs=tuple(inputs), outputs=tuple(outputs))


class _Ends:
    """The file's inputs and outputs, in its own order: (name, dims), None where open."""

    def __init__(self, path: Path) -> None:
        self._interpreter = Interpreter(model_path=str(path), num_threads=2)
        runner = self._interpreter.get_signature_list() or {}
        names = next(iter(runner.values()), None)
        self._details = self._interpreter.get_input_details(), self._interpreter.get_output_details()
        self.inputs = [self._port(detail) for detail in self._details[0]]
        self.outputs = [self._port(detail) for detail in self._details[1]]
        if names is not None:
            self._take_signature_names(path)

    @staticmethod
    def _port(detail: Mapping[str, Any]) -> tuple[str, tuple[int | None, ...]]:
        signature = np.atleast_1d(detail["shape_signature"]) if len(detail["shape"]) else ()
        return detail["name"], tuple(None if size < 0 else int(size) for size in signature)

    def _take_signature_names(self, path: Path) -> None:
        """The names that a reader of the file goes by (TfliteRuntime does): the signature's, not the tensors'."""
        model = schema.Model.GetRootAs(np.memmap(path, np.uint8, mode="r"), 0)
        signature = model.SignatureDefs(0)
        for ports, details, count, entry in (
            (self.inputs, self._details[0], signature.InputsLength(), signature.Inputs),
            (self.outputs, self._details[1], signature.OutputsLength(), signature.Outputs),
        ):
            named = {entry(i).TensorIndex(): entry(i).Name().decode() for i in range(count)}
            for place, detail in enumerate(details):
                ports[place] = named.get(detail["index"], ports[place][0]), ports[place][1]

    def run(self, feeds: Mapping[str, Array], way: Way) -> list[Array] | None:
        """The answers in the file's order; None where it does not run on these shapes."""
        try:
            for name, (place, order) in way.items():
                shape = feeds[name].transpose(order).shape
                self._interpreter.resize_tensor_input(self._details[0][place]["index"], shape)
            self._interpreter.allocate_tensors()
            for name, (place, order) in way.items():
                detail = self._details[0][place]
                self._interpreter.set_tensor(
                    detail["index"], feeds[name].transpose(order).astype(detail["dtype"], order="C")
                )
            self._interpreter.invoke()
            return [np.array(self._interpreter.get_tensor(detail["index"])) for detail in self._details[1]]
        except (RuntimeError, ValueError):
            return None


def _asked(model: Model, ends: _Ends) -> tuple[dict[str, Array], dict[str, Array]]:
    """One set of inputs of a size that both sides may take, and ONNX Runtime's answer."""
    source = model.to_bytes() or model.path
    assert source is not None, "a model without bytes has a file"
    session = open_session(source)
    names = [spec.name for spec in model.outputs]
    sizes = OpenSizes(model.inputs, apply_shapes(model.inputs, {}))
    known = domains(model)
    for shapes in islice(sizes.proposals(1), _MOST_SIZES):
        inputs = {spec.name: (spec, shapes[spec.name]) for spec in model.inputs}
        feeds = generate(inputs, known, kind="normal", seed=0, index=0)
        if next(_ways(model.inputs, feeds, ends), None) is None:
            continue
        try:
            return feeds, dict(zip(names, session.run(names, feeds), strict=True))
        except Exception:  # ONNX Runtime's exceptions have no base: this size is none that it takes
            continue
    offered = ", ".join(str(TensorSpec(name, "", dims)) for name, dims in ends.inputs)
    raise CannotConvertError("onnx2tf changed the model's inputs", why=f"they are {offered} in its file")


def _ways(specs: Sequence[TensorSpec], feeds: Mapping[str, Array], ends: _Ends) -> Iterator[Way]:
    """How the inputs may lie in the file, the likeliest first: by name, else by place."""
    free = {name: place for place, (name, _) in enumerate(ends.inputs)}
    unnamed = [place for name, place in free.items() if name not in feeds]
    choices: list[list[tuple[int, Permutation]]] = []
    for spec in specs:
        places = [free[spec.name]] if spec.name in free else unnamed
        choices.append(
            [
                (place, order)
                for place in places
                for order in _orders(feeds[spec.name].shape, ends.inputs[place][1])
            ]
        )
    for chosen in product(*choices):
        if len({place for place, _ in chosen}) == len(chosen):
            yield dict(zip((spec.name for spec in specs), chosen, strict=True))


def _orders(source: Sequence[int], target: Sequence[int | None]) -> list[Permutation]:
    """Every order of axes in which `source` has the dims of `target`; as it is first, then channels last."""
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


def _outputs(
    expected: Mapping[str, Array], answers: Sequence[Array] | None, ends: _Ends
) -> list[tuple[str, int, Permutation]]:
    """For every output of the model the place of its tensor and how its axes lie there."""
    if answers is None:
        raise CannotConvertError(
            "onnx2tf wrote a file that LiteRT does not run", why="on no size that was tried"
        )
    names = [name for name, _ in ends.outputs]
    found, taken = [], set()
    for name, value in expected.items():
        places = (
            [names.index(name)]
            if name in names
            else [i for i, other in enumerate(names) if other not in expected]
        )
        pairs = [
            (_difference(value.transpose(order), answers[place]), place, order)
            for place in places
            if place not in taken
            for order in _orders(value.shape, answers[place].shape)
        ]
        if not pairs:
            shapes = ", ".join(str(list(answers[place].shape)) for place in places)
            raise CannotConvertError(
                f"onnx2tf changed the output {name!r}", why=f"from {list(value.shape)} to {shapes}"
            )
        _, place, order = min(
            pairs, key=lambda pair: pair[0]
        )  # of equal ones the first, which is the likeliest
        taken.add(place)
        found.append((name, place, order))
    return found


def _error(expected: Mapping[str, Array], answers: Sequence[Array] | None, ends: _Ends) -> float:
    try:
        pairs = _outputs(expected, answers, ends)
    except OnnxportError:
        return np.inf
    assert answers is not None
    return max(
        (_difference(expected[n].transpose(order), answers[place]) for n, place, order in pairs), default=0.0
    )


def _difference(expected: Array, given: Array) -> float:
    """The largest difference relative to the largest value; infinite where one side alone is not finite."""
    if expected.dtype == object:
        return 0.0 if np.array_equal(expected, given) else np.inf
    a, b = expected.astype(np.float64), given.astype(np.float64)
    scale = float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a))) or 1.0
    with np.errstate(invalid="ignore"):
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0)) / scale


def _port(spec: TensorSpec, end: tuple[str, tuple[int | None, ...]], order: Permutation) -> Port:
    name, shape = end
    permutation = () if order == tuple(range(len(order))) else order
    return Port(spec.name, name, spec.dtype, shape, permutation)
