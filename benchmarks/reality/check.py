"""Say whether an artefact computes what its model computes, knowing nothing of onnxport.

    python -m benchmarks.reality.check MODEL ARTEFACT --seed 7 --sizes '{"x": [1, 3, 224, 224]}'

Plain ONNX Runtime runs the model and an `.ort`, LiteRT's interpreter a `.tflite`, on random inputs or given ones. How
much the model itself changes under a millionth of its inputs, without ONNX Runtime's optimizations, and for float16
with its weights rounded, is measured beside: no artefact can be nearer than that.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from benchmarks.matching import Array, Match, match_inputs, match_outputs, permutations_between

SAME, DIFFERENT, NOT_CHECKED = "same", "different", "not checked"
# Of an output's largest magnitude. Generous: a fault of conversion is far larger, rounding far smaller.
TOLERANCE = {"fp32": 1e-3, "fp16": 3e-2, "int8": 0.5}
# dB, on other samples than the budget of 15 was kept on. A single peak that is gone is no fault of a heat map in int8.
LEAST_SQNR = 10.0
# A model that rounds between its operators answers differently for each order of computation.
_ROUNDED = {"Quantize": 0.1, "Integer": 0.1, "QLinear": 0.1}
_TIMES_NOISE = 20.0
# Weights may round twice, as stored and as folded with a scale.
_TIMES_HALVES = 2.0
# Constants of fewer elements are settings, no weights.
_FEW = 16
# A detector that is silent on random inputs answers with a sigmoid's rounding alone.
_SILENT = 1e-6
_NUDGE = 1e-6
# Inputs that are tokens by their name, and of how many kinds; vocabularies of texts have more.
_TOKEN, _TOKENS = re.compile(r"\bids?\b|_ids?\b|token"), 1000
_DTYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}

Feeds = dict[str, Array]
Dims = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Check:
    """The check's verdict, why, and the largest error and the model's own noise, of the output's scale."""

    verdict: str
    told: str
    error: float = 0.0
    noise: float = 0.0


def check(
    model: Path,
    artefact: Path,
    sizes: Mapping[str, Sequence[int]],
    seed: int,
    precision: str,
    folder: Path | None = None,
) -> Check:
    """Compare an artefact with its model on the .npz files of `folder`, else on two random input sets."""
    reference = _session(model)
    try:
        if folder is None:
            samples = [usable_inputs(model, reference, sizes, seed + number, number) for number in range(2)]
        else:
            samples = [dict(np.load(file)) for file in sorted(folder.iterdir())]
    except ValueError as error:
        return Check(NOT_CHECKED, str(error))
    expected = [_answers(reference, feeds) for feeds in samples]
    try:
        answers = _artefact(artefact, samples)
    except (RuntimeError, ValueError) as error:
        return Check(DIFFERENT, f"does not run: {' '.join(str(error).split())[:300]}")
    numeric = _finite_ones([_numeric(each) for each in expected])
    if not numeric[0]:
        return Check(NOT_CHECKED, "no output is a tensor of finite numbers")
    worst, noise, hidden = Match("", None, (), -1.0, 1.0), 0.0, ""
    allowed = tolerance(model, precision)
    own = {match.output: match.relative for match in _own_noise(model, reference, samples, numeric)}
    halved = _loss_of_halves(model, samples, numeric) if precision == "fp16" else {}
    given = [_numeric(each) for each in answers]
    for match in match_outputs(numeric, given):
        there = own.get(match.output, 0.0)
        is_near = precision == "int8" and _sqnr(match, numeric, given) >= LEAST_SQNR
        if match.error > _SILENT and match.relative > max(allowed, _TIMES_NOISE * there) and not is_near:
            told = f"{match.output}: {match.relative:.1e} of its scale, its own noise {there:.1e}"
            rounding = halved.get(match.output, 0.0)
            if match.relative > _TIMES_HALVES * rounding:
                return Check(DIFFERENT, told, _finite(match.relative), _finite(there))
            hidden = hidden or f"{told}, but rounding its weights to float16 alone gives {rounding:.1e}"
        if match.relative > worst.relative:
            worst, noise = match, there
    if hidden:
        return Check(NOT_CHECKED, hidden)
    return Check(SAME, f"within {worst.relative:.1e}", _finite(worst.relative), _finite(noise))


def _sqnr(match: Match, expected: Sequence[Feeds], given: Sequence[Feeds]) -> float:
    """Return 10 log10(sum signal^2 / sum difference^2) of a pair of outputs in dB."""
    signal = noise = 0.0
    for reference, answer in zip(expected, given, strict=True) if match.tensor is not None else ():
        array = reference[match.output].astype(np.float64).transpose(match.permutation)
        if array.shape != answer[str(match.tensor)].shape:
            return -math.inf
        signal += float(np.square(array).sum())
        noise += float(np.square(array - answer[str(match.tensor)]).sum())
    return 10 * math.log10(signal / noise) if signal and noise else -math.inf


def tolerance(model: Path, precision: str) -> float:
    """Return the allowed error of an output's scale: larger for a model that itself rounds to integers or float16."""
    graph = onnx.load(model, load_external_data=False).graph
    operators = {node.op_type for node in graph.node}
    halves = any(each.data_type == onnx.TensorProto.FLOAT16 for each in graph.initializer)
    allowed = [step for part, step in _ROUNDED.items() if any(part in operator for operator in operators)]
    return max([TOLERANCE[precision], TOLERANCE["fp16"] * halves, *allowed])


def declared_sizes(model: Path) -> dict[str, Dims]:
    """Return the declared sizes of each input: numbers, names or None."""
    return {each.name: tuple(each.shape) for each in _session(model).get_inputs()}


def filled(declared: Mapping[str, Dims], known: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Replace open sizes by known ones, else by 1 for the batch, 224 for images and 16 elsewhere."""

    def size(name: str, axis: int, dim: int | str | None, rank: int) -> int:
        if name in known and len(known[name]) == rank:
            return known[name][axis]
        if isinstance(dim, int) and dim > 0:
            return dim
        return 1 if axis == 0 else 224 if rank == 4 else 16

    return {
        name: tuple(size(name, axis, dim, len(dims)) for axis, dim in enumerate(dims))
        for name, dims in declared.items()
    }


def random_inputs(model: Path, sizes: Mapping[str, Sequence[int]], seed: int, kind: int) -> Feeds:
    """Return random inputs that the model accepts.

    Raises:
        ValueError: none of a few kinds of values is accepted.
    """
    return usable_inputs(model, _session(model), sizes, seed, kind)


def usable_inputs(
    model: Path, session: ort.InferenceSession, sizes: Mapping[str, Sequence[int]], seed: int, kind: int
) -> Feeds:
    """Return the first random inputs that the model accepts: integers below 10, below 2, or the longest size."""
    inputs = session.get_inputs()
    if strange := [each.type for each in inputs if each.type not in _DTYPES]:
        raise ValueError(f"it takes {strange[0]}")
    declared = {each.name: tuple(each.shape) for each in inputs}
    shapes = filled(declared, sizes)
    longest = max((max(shape, default=1) for shape in shapes.values()), default=1)
    refusal = ""
    for drawn, *bounds in _tries(kind, longest):
        rng = np.random.default_rng(seed)
        feeds = {
            each.name: _values(
                rng, _DTYPES[each.type], shapes[each.name], drawn, *_bounds(each.name, *bounds)
            )
            for each in inputs
        }
        try:
            answers = _answers(session, feeds)
        except Exception as error:  # ONNX Runtime raises types of its own
            refusal = " ".join(str(error).split())
            continue
        if any(np.isfinite(each).any() for each in _numeric(answers).values() if each.size):
            return feeds
        refusal = "nothing finite comes out"
    raise ValueError(f"it accepts no random inputs: {refusal[:200]}")


def _tries(kind: int, longest: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield kinds of floats, bounds of integers, and the number of tokens.

    A ratio must be positive, a length may have to fit. The first ten tokens of a vocabulary are marks, which no text
    consists of.
    """
    bounds = ((0, 10), (0, 2), (longest, longest + 1), (1, 2))
    for drawn in dict.fromkeys((kind % 2, 0)):
        yield drawn, *bounds[0], _TOKENS
        for lowest, highest in bounds:
            yield drawn, lowest, highest, highest


def _bounds(name: str, lowest: int, highest: int, tokens: int) -> tuple[int, int]:
    """Return bounds of an integer input: a mask is 0 or 1, since models turn 9 into a score of 8e9."""
    if "mask" in name.lower():
        return 0, 2
    return (0, tokens) if tokens > highest and _TOKEN.search(name.lower()) else (lowest, highest)


def _values(
    rng: np.random.Generator,
    dtype: type[np.generic],
    shape: Sequence[int],
    kind: int,
    lowest: int,
    highest: int,
) -> Array:
    if dtype is np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(lowest, highest, shape).astype(dtype)
    drawn = rng.standard_normal(shape) if kind else rng.random(shape)
    return np.asarray(drawn, dtype=dtype)


def _own_noise(
    model: Path, session: ort.InferenceSession, samples: Sequence[Feeds], expected: Sequence[Feeds]
) -> list[Match]:
    """Return how much each output changes under tiny changes of the inputs, or of the order of computation."""
    nudged = [{name: _nudged(array) for name, array in feeds.items()} for feeds in samples]
    changes: list[Callable[[], list[dict[str, Array]]]] = [
        lambda: [_answers(session, feeds) for feeds in nudged],
        lambda: [_answers(_session(model, optimized=False), feeds) for feeds in samples],
    ]
    found: dict[str, Match] = {}
    for change in changes:
        try:
            answers = [_numeric(each) for each in change()]
        except Exception:  # without optimizations ONNX Runtime may lack a kernel
            continue
        for name in expected[0]:
            match = match_outputs(
                [{name: each[name]} for each in expected], [{name: each[name]} for each in answers]
            )
            if name not in found or match[0].relative > found[name].relative:
                found[name] = match[0]
    return list(found.values())


def _loss_of_halves(model: Path, samples: Sequence[Feeds], expected: Sequence[Feeds]) -> dict[str, float]:
    """Return how far each output moves when the model's own weights are rounded to float16: no file is nearer."""
    proto = onnx.load(model)
    constants = [each.attribute[0].t for each in proto.graph.node if each.op_type == "Constant"]
    for tensor in (*proto.graph.initializer, *constants):
        values = onnx.numpy_helper.to_array(tensor) if tensor.data_type == onnx.TensorProto.FLOAT else None
        if values is not None and values.size > _FEW:
            with np.errstate(over="ignore"):
                halves = values.astype(np.float16).astype(np.float32)
            if np.isfinite(halves).all():
                tensor.CopyFrom(onnx.numpy_helper.from_array(halves, tensor.name))
    try:
        session = _session(proto.SerializeToString())
    except ValueError:  # beyond 2 GB
        return {}
    answers = [_numeric(_answers(session, feeds)) for feeds in samples]
    names = expected[0].keys()
    kept = [{name: each[name] for name in names} for each in answers]
    return {each.output: each.relative for each in match_outputs(expected, kept)}


def _nudged(array: Array) -> Array:
    if not np.issubdtype(array.dtype, np.floating):
        return array
    # A float16 has no room for a millionth: its own last bit then.
    step = max(_NUDGE, float(np.finfo(array.dtype).eps))
    return np.asarray(array * (1 + step), dtype=array.dtype)


def _artefact(path: Path, samples: Sequence[Feeds]) -> list[dict[str, Array]]:
    if path.suffix == ".ort":
        session = _session(path)
        return [_answers(session, feeds) for feeds in samples]
    return [_litert(path, feeds) for feeds in samples]


def _litert(path: Path, feeds: Feeds) -> dict[str, Array]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter: Any = Interpreter(os.fspath(path), num_threads=1)
    inputs, outputs = _ports(interpreter)
    by_index = {detail["index"]: detail for detail in interpreter.get_input_details()}
    details = {name: by_index[index] for name, index in inputs.items()}
    # An input that no answer depends on may be gone.
    fed = {name: array for name, array in feeds.items() if name in details} or feeds
    shapes = {name: _resized(detail, fed.get(name)) for name, detail in details.items()}
    for name, shape in shapes.items():
        if list(details[name]["shape"]) != shape:
            interpreter.resize_tensor_input(details[name]["index"], shape)
    interpreter.allocate_tensors()
    for name, ways in match_inputs({name: array.shape for name, array in fed.items()}, shapes).items():
        tensor, permutation = ways[0]
        detail = details[tensor]
        # ascontiguousarray would make a scalar a vector.
        given = np.array(fed[name].transpose(permutation), dtype=detail["dtype"], order="C")
        interpreter.set_tensor(detail["index"], given)
    interpreter.invoke()
    return {name: np.array(interpreter.get_tensor(index)) for name, index in outputs.items()}


def _ports(interpreter: Any) -> tuple[dict[str, int], dict[str, int]]:
    """Return the indices of inputs and outputs by their names in the signature, else by the tensors' own."""
    for signature in interpreter._get_full_signature_list().values():
        return dict(signature["inputs"]), dict(signature["outputs"])
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    return {each["name"]: each["index"] for each in inputs}, {each["name"]: each["index"] for each in outputs}


def _resized(detail: Mapping[str, Any], array: Array | None) -> list[int]:
    """Return the shape to give a tensor: the array's where its signature is open, in its order of axes."""
    shape = [int(size) for size in detail["shape"]]
    signature = [int(size) for size in detail["shape_signature"]]
    if array is None or -1 not in signature or len(signature) != array.ndim:
        return shape
    fitting = [
        list(size)
        for size in (
            [array.shape[axis] for axis in permutation]
            for permutation in permutations_between(array.shape, array.shape)
        )
        if all(wanted in (-1, given) for wanted, given in zip(signature, size, strict=True))
    ]
    return fitting[0] if fitting else shape


def _session(model: Path | bytes, *, optimized: bool = True) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # x86 CPUs without VNNI add products of 8 bits in 16, which saturates; this is exact everywhere.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = model if isinstance(model, bytes) else os.fspath(model)
    try:
        return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Fail:
        # With that entry, two of ONNX Runtime's fusions store one weight under one name (a QDQ ResNet-50).
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def _answers(session: ort.InferenceSession, feeds: Feeds) -> dict[str, Any]:
    taken = {each.name for each in session.get_inputs()}
    names = [output.name for output in session.get_outputs()]
    given = {name: array for name, array in feeds.items() if name in taken}
    return dict(zip(names, session.run(names, given), strict=True))


def _numeric(answers: Mapping[str, Any]) -> dict[str, Array]:
    return {
        name: array
        for name, array in answers.items()
        if isinstance(array, np.ndarray) and array.dtype.kind in "fiub"
    }


def _finite_ones(answers: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
    """Leave out outputs with NaN or infinity: random inputs may mean nothing, as a range from 2 to 1."""
    names = [name for name in answers[0] if all(np.isfinite(each[name]).all() for each in answers)]
    return [{name: each[name] for name in names} for each in answers]


def _finite(number: float) -> float:
    return number if math.isfinite(number) else 1e30


def main() -> None:
    """Print the check as a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reality.check")
    parser.add_argument("model", type=Path)
    parser.add_argument("artefact", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=TOLERANCE, default="fp32")
    parser.add_argument("--sizes", type=json.loads, default={}, help="sizes of open inputs, as JSON")
    parser.add_argument("--samples", type=Path, help="folder with .npz files to check on, for random inputs")
    given = parser.parse_args()
    found = check(given.model, given.artefact, given.sizes, given.seed, given.precision, given.samples)
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
