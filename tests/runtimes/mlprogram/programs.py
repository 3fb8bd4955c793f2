"""Programs made with coremltools' builder, and packages written by coremltools itself: nothing of our writer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.converters.coreml import library  # noqa: F401 - before coremltools
from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes.mlprogram.evaluator import Evaluator

Array = np.ndarray[Any, np.dtype[Any]]
Arguments = Mapping[str, Any]


def target(opset: str) -> Any:
    import coremltools

    return getattr(coremltools.target, opset)


def builder() -> Any:
    from coremltools.converters.mil import Builder

    return Builder


@dataclass(frozen=True)
class Written:
    """A package and what feeds its inputs."""

    path: Path
    feeds: dict[str, Array]
    outputs: list[str]

    def evaluator(self, *, strict: bool = True) -> Evaluator:
        return Evaluator(read_package(self.path).functions["main"], strict=strict)

    def run(self, *, strict: bool = True) -> list[Array]:
        found = self.evaluator(strict=strict).run(self.feeds)
        return [np.asarray(found[name]) for name in self.outputs]


def write(
    folder: Path,
    feeds: Mapping[str, Array],
    build: Callable[..., Sequence[Any]],
    opset: str = "iOS17",
    open_dims: Mapping[str, Sequence[int]] | None = None,
    states: Mapping[str, Array] | None = None,
) -> Written:
    """A package of the program that `build` makes of the inputs by name.

    Args:
        build: given the input variables (rank 0 of scalars), gives the output variables.
        open_dims: axes of an input that are symbols.
        states: inputs that are states.
    """
    from coremltools.converters.mil.mil import Function, Placeholder, Program, get_new_symbol, types
    from coremltools.converters.mil.mil.program import StateTensorPlaceholder

    placed: dict[str, Any] = {}
    for name, value in feeds.items():
        shape: list[Any] = list(value.shape) or [1]
        for axis in (open_dims or {}).get(name, ()):
            shape[axis] = get_new_symbol()
        placed[name] = Placeholder(tuple(shape), types.numpy_type_to_builtin_type(value.dtype), name=name)
    for name, value in (states or {}).items():
        dtype = types.numpy_type_to_builtin_type(value.dtype)
        placed[name] = StateTensorPlaceholder(value.shape, dtype, name=name)
    program = Program()
    with Function(placed, opset_version=target(opset)) as function:
        given = dict(function.inputs)
        for name, value in feeds.items():
            if not value.shape:
                given[name] = builder().squeeze(x=given[name], axes=[0])
        outputs = list(build(**given))
    function.set_outputs(outputs)
    program.add_function("main", function)
    path = save(program, folder, opset)
    entering = {name: value.reshape(value.shape or (1,)) for name, value in feeds.items()}
    return Written(path, entering, [each.name for each in outputs])


def save(program: Any, folder: Path, opset: str) -> Path:
    """coremltools' serializer and package writer, without its passes, which rewrite programs."""
    from coremltools import proto
    from coremltools.converters.mil.backend.mil.load import MILProtoExporter
    from coremltools.models import MLModel

    version = target(opset).value
    weights = Path(tempfile.mkdtemp(dir=folder))
    model = proto.Model_pb2.Model(specificationVersion=version)
    exporter = MILProtoExporter(prog=program, weights_dir=str(weights), specification_version=version)
    model.mlProgram.CopyFrom(exporter.export())
    path = Path(tempfile.mkdtemp(dir=folder)) / "model.mlpackage"
    MLModel(model, weights_dir=str(weights), skip_model_load=True).save(str(path))
    return path


def apple(operator: str, arguments: Arguments, opset: str) -> list[Array]:
    """What coremltools computes of an operator on constants, by its value_inference."""
    from coremltools.converters.mil.mil import Function, Placeholder

    unused = {"unused": Placeholder((1,), name="unused")}
    with Function(unused, opset_version=target(opset)):
        made = getattr(builder(), operator)(**arguments)
    values = [each.val for each in (made if isinstance(made, list | tuple) else [made])]
    if any(value is None for value in values):
        raise LookupError(f"{operator} has no value_inference for {arguments}")
    return [np.asarray(value) for value in values]


def take_values(operator: str, opset: str) -> set[str]:
    """The operator's parameters that need not be constants."""
    from coremltools.converters.mil.mil.input_type import TupleInputType
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    versions = SSAOpRegistry.core_ops[operator]
    newest = max(
        (each for each in versions if each.value <= target(opset).value), key=lambda each: each.value
    )
    types = versions[newest].input_spec.input_types
    constant_tuples = {"begins", "ends", "end_masks"}
    return {
        name
        for name, type_ in types.items()
        if not type_.const and (not isinstance(type_, TupleInputType) or name not in constant_tuples)
    }


def evaluated(
    folder: Path,
    operator: str,
    cases: Sequence[Arguments],
    opset: str,
    *,
    strict: bool = True,
    fixed: Collection[str] = (),
) -> list[list[Array]]:
    """What the evaluator makes of each case: all in one package.

    Args:
        fixed: parameters that stay constants; all others that may be inputs are inputs.
    """
    variable = take_values(operator, opset) - set(fixed)
    feeds: dict[str, Array] = {}
    for number, case in enumerate(cases):
        for name in variable & case.keys():
            value = case[name]
            several = value if isinstance(value, list | tuple) else [value]
            feeds |= {f"i{number}_{name}_{place}": np.asarray(each) for place, each in enumerate(several)}

    counts: list[int] = []

    def build(**inputs: Any) -> list[Any]:
        outputs: list[Any] = []
        for number, case in enumerate(cases):
            arguments = dict(case)
            for name in variable & case.keys():
                value = case[name]
                if isinstance(value, list | tuple):
                    arguments[name] = [inputs[f"i{number}_{name}_{place}"] for place in range(len(value))]
                else:
                    arguments[name] = inputs[f"i{number}_{name}_0"]
            made = getattr(builder(), operator)(**arguments)
            made = list(made) if isinstance(made, list | tuple) else [made]
            counts.append(len(made))
            outputs += made
        return outputs

    written = write(folder, feeds, build, opset)
    found = iter(written.run(strict=strict))
    return [[next(found) for _ in range(count)] for count in counts]
