"""ONNX's own tests brought to other opsets, each held against ONNX Runtime's answers to the original.

    python -m tests.conformance.opsets                     # all cases, to the newest opset and down to 11
    python -m tests.conformance.opsets --bound             # all inputs but the first are constants
    python -m tests.conformance.opsets --verbose           # with every refusal
    python -m tests.conformance.opsets DATA                # those of another version, unpacked: onnx/backend/test/data

Three ways: up to the newest opset that ONNX Runtime runs, down to 11, and from the newest back to where it came from.
Random operators are left out: their answers are nobody's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from onnxport.formats.model import Model
from onnxport.optimizers.opset import OLDEST_OPSET, LiftError, convert_opset
from onnxport.optimizers.params import LOWEST_OPSET
from tests.conformance.harness import COLLECTIONS, RTOL, cases
from tests.conformance.onnxruntime import answers, is_same

_NOISE = 2e-6  # of an output's largest value
_RANDOM = frozenset(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli".split()
)


def outcomes(folder: Path, *, bound: bool) -> dict[str, str]:
    """What became of a case on each way: "right", "wrong: ...", "refused: ..."; empty where it proves nothing."""
    proto = onnx.load(folder / "model.onnx")
    sets = sorted(folder.glob("test_data_set_*"))
    if bound:
        _bind(proto, sets[0])
    model = Model(ir.from_proto(proto))
    random = any(node.op_type in _RANDOM for node in model.graph.all_nodes())
    if model.opset < OLDEST_OPSET or random or not sets:
        return {}
    try:
        expected = _answers(proto, sets)
    except Exception:  # ONNX Runtime's own errors have no common class
        return {}
    newest: list[Model] = []
    found = {"up": _outcome(lambda: _kept(newest, convert_opset(model, "latest").model), sets, expected)}
    if model.opset > LOWEST_OPSET:
        found["down"] = _outcome(lambda: convert_opset(model, LOWEST_OPSET).model, sets, expected)
    if newest and newest[0].opset > max(model.opset, LOWEST_OPSET):
        back = max(model.opset, LOWEST_OPSET)
        found["up and down"] = _outcome(lambda: convert_opset(newest[0], back).model, sets, expected)
    return found


def _kept(place: list[Model], model: Model) -> Model:
    place.append(model)
    return model


def _bind(proto: onnx.ModelProto, data_set: Path) -> None:
    """Makes constants of all tensors that are fed but the first."""
    for index, value in reversed(list(enumerate(proto.graph.input))[1:]):
        file = data_set / f"input_{index}.pb"
        if value.type.HasField("tensor_type") and file.exists():
            tensor = onnx.TensorProto.FromString(file.read_bytes())
            tensor.name = value.name
            proto.graph.initializer.append(tensor)
            del proto.graph.input[index]


def _answers(proto: onnx.ModelProto, sets: Sequence[Path]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [answers(session, data_set) for data_set in sets]


def _outcome(bring: Callable[[], Model], sets: Sequence[Path], expected: Sequence[Any]) -> str:
    try:
        found = _answers(ir.to_proto(bring().ir), sets)
    except LiftError as error:
        return f"refused: {'; '.join(sorted({f'{each.op}: {each.why}' for each in error.refusals}))}"
    except Exception as error:
        return f"wrong: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    for wanted, given in zip(expected, found, strict=True):
        if not all(map(_agrees, wanted, given)):
            return "wrong: another answer"
    return "right"


def _agrees(expected: Any, given: Any) -> bool:
    """As onnx's own runner compares, but for float32's noise: a sum that cancels is not 0 to the last bit."""
    if is_same(expected, given):
        return True
    if (
        not isinstance(expected, np.ndarray)
        or expected.dtype.kind not in "fc"
        or expected.shape != np.shape(given)
    ):
        return False
    finite = np.abs(expected[np.isfinite(expected)])
    return np.allclose(given, expected, rtol=RTOL, atol=_NOISE * finite.max(initial=0.0), equal_nan=True)


def _cases(arguments: Sequence[str]) -> Iterator[tuple[str, Path]]:
    if not arguments:
        yield from cases().items()
    for data in arguments:
        for collection in COLLECTIONS:
            for folder in sorted(Path(data, collection).iterdir()):
                yield f"{collection}/{folder.name}", folder


def main(arguments: Sequence[str]) -> int:
    """Runs every case, prints how many are right, refused and wrong on each way, and each that is wrong."""
    onnxruntime.set_default_logger_severity(4)
    places = [each for each in arguments if not each.startswith("--")]
    verdicts, reasons, silent = Counter[tuple[str, str]](), Counter[str](), 0
    for name, folder in _cases(places):
        found = outcomes(folder, bound="--bound" in arguments)
        silent += not found
        for way, outcome in found.items():
            verdict, _, why = outcome.partition(": ")
            verdicts[way, verdict] += 1
            if verdict == "refused":
                reasons[f"{way}: {why}"] += 1
            if verdict == "wrong":
                print(f"{name} {way}: {why}")
    for way in ("up", "down", "up and down"):
        print(way, *(f"{verdict} {verdicts[way, verdict]}" for verdict in ("right", "refused", "wrong")))
    print(
        f"{silent} cases prove nothing: ONNX Runtime does not answer them, they are random, or older than opset 7"
    )
    if "--verbose" in arguments:
        for reason, count in reasons.most_common():
            print(f"{count:4} {reason}")
    return sum(count for (_, verdict), count in verdicts.items() if verdict == "wrong")


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
