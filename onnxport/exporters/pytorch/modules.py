"""PyTorch models as a Framework: eager answers, and export by torch.export and torch.onnx."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import CannotConvertError, InputError
from onnxport.exporters.framework import Exported
from onnxport.exporters.params import ExportParams
from onnxport.exporters.pytorch import torchscript
from onnxport.exporters.pytorch.capture import Dims, capture, symbolic_inputs
from onnxport.exporters.pytorch.dimension_names import DimensionNames
from onnxport.exporters.pytorch.errors import at_place, first_line, place_of_error
from onnxport.exporters.pytorch.example_inputs import Call, bind_inputs, make_example, open_sizes
from onnxport.exporters.pytorch.onnx_writer import write
from onnxport.exporters.pytorch.outputs import (
    leaves,
    name_outputs,
    pick_outputs,
    refuse_complex,
    register_dataclasses,
    to_tensor,
)
from onnxport.exporters.pytorch.states import BufferStates
from onnxport.formats.artifact import TensorSpec
from onnxport.runtimes.base import MemoryFullError, RunError

Tensors = Mapping[str, torch.Tensor]

_LEFT_OUT = (
    "{} output is a constant or None, and was left out",
    "{} outputs are constants or None, and were left out",
)


class TorchModel:
    """The common part of all PyTorch models: eager answers.

    Args:
        forward: from the inputs by name to the model's answer.
        picks: output name to its index among the `count` leaves of an answer.
        states: the buffers that forward changes, restored after each call.
    """

    kind = "pytorch"

    def __init__(
        self,
        forward: Callable[[Tensors], Any],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        picks: Mapping[str, int],
        count: int,
        states: BufferStates,
        notes: Sequence[str],
    ) -> None:
        self._forward, self._picks, self._count, self._states = forward, picks, count, states
        self.inputs, self.outputs, self.notes = tuple(inputs), tuple(outputs), tuple(notes)
        self.name = f"PyTorch {torch.__version__}, eager, CPU"

    @property
    def has_other_kernels(self) -> bool:
        return bool(torch.backends.mkldnn.is_available())

    def run(self, feeds: Feeds, *, other_kernels: bool = False) -> dict[str, Array]:
        tensors = {spec.name: to_tensor(feeds[spec.name]) for spec in self.inputs}
        try:
            with torch.no_grad(), torch.backends.mkldnn.flags(enabled=not other_kernels):
                return pick_outputs(self._forward(tensors), self._picks, self._count)
        except RunError:
            raise
        except Exception as error:  # forward is the user's code
            if "not enough memory" in str(error) or isinstance(error, MemoryError):
                raise MemoryFullError("the machine ran out of memory", why="in forward") from error
            raise RunError("forward refuses these inputs", why=first_line(error)) from error
        finally:
            self._states.restore()


class CapturedModel(TorchModel):
    """A model with an exported program."""

    def __init__(
        self, program: torch.export.ExportedProgram, dims: DimensionNames, name: str, **common: Any
    ) -> None:
        super().__init__(**common)
        self._program, self._dims, self._name = program, dims, name

    def export(self, output: Path, opset: int | None) -> Exported:
        inputs, outputs = ([spec.name for spec in specs] for specs in (self.inputs, self.outputs))
        write(self._program, output, opset, inputs, outputs, self._dims, self._name)
        return Exported(output, self.notes, {"exporter": f"torch.onnx {torch.__version__}"})


class TracedModel(TorchModel):
    """A model that the TorchScript exporter traces on one example."""

    def __init__(
        self, module: Any, call: Call, tensors: Tensors, dynamic: Dims, name: str, **common: Any
    ) -> None:
        super().__init__(**common)
        self._module, self._call, self._tensors = module, call, tensors
        self._dynamic, self._name = dynamic, name

    def export(self, output: Path, opset: int | None) -> Exported:
        names = [spec.name for spec in self.outputs]
        torchscript.write(
            self._module, self._call, self._tensors, self._dynamic, output, opset, names, self._name
        )
        facts = {"exporter": f"torch.onnx {torch.__version__}, TorchScript"}
        return Exported(output, (*self.notes, torchscript.NOTE), facts)


def of_module(
    module: torch.nn.Module, params: ExportParams, name: str, notes: Sequence[str] = ()
) -> TorchModel:
    """Return the Framework of a module.

    Raises:
        UsageError: inputs that do not fit forward.
        InputError: forward raises on the example.
        CannotConvertError: torch.export cannot capture it.
    """
    call, bound = bind_inputs(module, params.input, name)
    specs = {key: params.input[key] for key in call.names}
    sizes = open_sizes(specs, params.dynamic)
    said_so = [*notes, *bound, *_prepare_module(module)]
    given = {key: tuple(int(str(size)) for size in spec.shape) for key, spec in specs.items()}
    tensors = make_example(list(specs.values()), given)
    states = BufferStates(module)
    answer = _try_forward(module, call, tensors, name)
    states.learn()
    if sizes != given:
        tensors = make_example(list(specs.values()), sizes)
        answer = _try_open_sizes(module, call, tensors, params.dynamic, sizes, name)
        states.restore()
    register_dataclasses(answer)
    forward = _forward(module, call)
    if params.exporter == "torchscript":
        return _trace(module, call, tensors, params, name, forward, answer, states, said_so)
    program = capture(module, call, tensors, params.dynamic, name)
    fakes = dict(zip(call.names, symbolic_inputs(program).values(), strict=True))
    return of_program(program, fakes, params, name, forward, answer, states, said_so)


def of_program(
    program: torch.export.ExportedProgram,
    fakes: Tensors,
    params: ExportParams,
    name: str,
    forward: Callable[[Tensors], Any],
    answer: Any,
    states: BufferStates,
    notes: Sequence[str],
) -> CapturedModel:
    """Return the Framework of a program, with `forward` as the reference.

    Args:
        fakes: its inputs by name, as torch.export sees them.
        answer: forward's result for an example.
    """
    dims = DimensionNames.of(program, fakes, params.dynamic)
    found = list(leaves(answer))
    values = _symbolic_outputs(program)
    if len(values) != len(found):
        raise CannotConvertError(
            f"{name} gives {len(found)} values to its caller and {len(values)} to torch.export",
            fix="return tensors, or tuples and dictionaries of them",
        )
    kept = [number for number, value in enumerate(values) if value is not None]
    if not kept:
        raise CannotConvertError(f"{name} gives no tensor", fix="return what the ONNX model is to give")
    names = name_outputs([found[number][0] for number in kept], params.output_names, list(fakes))
    specs = [_spec(key, values[number], dims) for key, number in zip(names, kept, strict=True)]
    dropped = len(found) - len(kept)
    lost = [_LEFT_OUT[dropped > 1].format(dropped)] if dropped else []
    return CapturedModel(
        program,
        dims,
        name,
        forward=forward,
        inputs=[_spec(key, fake, dims) for key, fake in fakes.items()],
        outputs=specs,
        picks=dict(zip(names, kept, strict=True)),
        count=len(found),
        states=states,
        notes=[*notes, *states.notes, *dims.notes, *lost],
    )


def _symbolic_outputs(program: torch.export.ExportedProgram) -> list[Any]:
    """Return the program's outputs without values; None for constants."""
    nodes = {node.name: node for node in program.graph.nodes}
    given = []
    for spec in program.graph_signature.output_specs:
        if spec.kind is torch.export.graph_signature.OutputKind.USER_OUTPUT:
            is_constant = isinstance(spec.arg, torch.export.graph_signature.ConstantArgument)
            given.append(None if is_constant else nodes[spec.arg.name].meta["val"])
    return given


def _spec(name: str, value: Any, dims: DimensionNames) -> TensorSpec:
    if not isinstance(value, torch.Tensor):  # a size that forward gives back
        kinds = ((torch.SymInt, "int64"), (torch.SymBool, "bool"))
        return TensorSpec(
            name, next((dtype for kind, dtype in kinds if isinstance(value, kind)), "float32"), ()
        )
    refuse_complex(value.dtype, name)
    return TensorSpec(name, str(value.dtype).removeprefix("torch."), dims.shape(value.shape))


def _trace(
    module: Any,
    call: Call,
    tensors: Tensors,
    params: ExportParams,
    name: str,
    forward: Callable[[Tensors], Any],
    answer: Any,
    states: BufferStates,
    notes: Sequence[str],
) -> TracedModel:
    found = list(leaves(answer))
    kept = [number for number, (_, leaf) in enumerate(found) if isinstance(leaf, torch.Tensor)]
    names = name_outputs([found[number][0] for number in kept], params.output_names, call.names)
    is_open = any(dim for dims in params.dynamic.values() for dim in dims)
    outputs = []
    for key, number in zip(names, kept, strict=True):
        tensor = found[number][1]
        refuse_complex(tensor.dtype, key)
        shape = (None,) * tensor.ndim if is_open else tuple(tensor.shape)
        outputs.append(TensorSpec(key, str(tensor.dtype).removeprefix("torch."), shape))
    inputs = []
    for key, tensor in tensors.items():
        dims = zip(params.dynamic.get(key, (None,) * tensor.ndim), tensor.shape, strict=True)
        inputs.append(TensorSpec(key, params.input[key].dtype, tuple(dim or size for dim, size in dims)))
    return TracedModel(
        module,
        call,
        tensors,
        params.dynamic,
        name,
        forward=forward,
        inputs=inputs,
        outputs=outputs,
        picks=dict(zip(names, kept, strict=True)),
        count=len(found),
        states=states,
        notes=[*notes, *states.notes],
    )


def _forward(module: Any, call: Call) -> Callable[[Tensors], Any]:
    def forward(tensors: Tensors) -> Any:
        args, kwargs = call.arguments(tensors)
        return module(*args, **kwargs)

    return forward


def _prepare_module(module: torch.nn.Module) -> list[str]:
    """Put the module into inference mode, and note what was changed for it."""
    notes = []
    if module.training:
        notes.append("the module was in training mode; it is exported as eval() has it")
    module.eval()
    if any(tensor.device.type not in ("cpu", "meta") for tensor in module.state_dict().values()):
        module.to("cpu")
        notes.append("the module was on another device; it answers on the CPU")
    if torch.backends.mha.get_fastpath_enabled():
        # Its kernels give zeros where the padding is, and cut it off; what is exported are the layers' own formulas.
        torch.backends.mha.set_fastpath_enabled(False)
    return notes


def _try_forward(module: Any, call: Call, tensors: Tensors, name: str) -> Any:
    try:
        with torch.no_grad():
            return _forward(module, call)(tensors)
    except Exception as error:  # forward is the user's code
        dtypes = {key: str(tensor.dtype).removeprefix("torch.") for key, tensor in tensors.items()}
        given = ", ".join(f"{key}={list(tensor.shape)}:{dtypes[key]}" for key, tensor in tensors.items())
        raise InputError(
            f"forward of {name} raises on the example {given}{at_place(place_of_error(error.__traceback__, module))}",
            why=first_line(error),
            fix=f"give --input shapes and dtypes that it takes; it is forward{call.signature}",
        ) from error


def _try_open_sizes(
    module: Any, call: Call, tensors: Tensors, dynamic: Dims, sizes: Mapping[str, tuple[int, ...]], name: str
) -> Any:
    try:
        return _try_forward(module, call, tensors, name)
    except InputError as error:
        opened = {dim for dims in dynamic.values() for dim in dims if dim}
        raise CannotConvertError(
            f"{name} takes no other size of {' and '.join(map(repr, sorted(opened)))}",
            why=f"{error.what}: {error.why}",
            fix="name that dimension in --dynamic for every input that has it, or leave it out",
        ) from error
