"""ONNX's own node tests through a converter of ours, judged by the answers stored beside them; a module per target.

Every graph input stays a run-time input, so nothing can be folded away and each kernel has to answer. Bound, all
inputs but the first become initializers, as weights, axes and sizes are in real models: that is another path through
most lowerings.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.version_converter
import onnx_ir
import onnxruntime

from fixtures import models
from onnxport.core.child_process import Child
from onnxport.core.errors import CannotConvertError, InputError, MachineError, UsageError
from onnxport.formats.manifest import Manifest
from onnxport.formats.model import Model
from tests.conformance.reasons import reason_of

Array = np.ndarray[Any, np.dtype[Any]]
# Disputed: not the stored answer but ONNX Runtime's, which is what a user's artefact is held against.
Verdict = Literal["right", "disputed", "wrong", "refused", "crash", "bug"]

COLLECTIONS = ("node", "simple", "pytorch-converted", "pytorch-operator")
RTOL, ATOL = 1e-3, 1e-7  # of onnx's own backend test runner
# Cases whose stored answer is rounding noise where the exact one is 0, and what the noise stays below.
NOISE = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}
MANIFEST = Manifest(source="", made_by={}, options={}, validation="skipped")


@dataclass(frozen=True)
class Outcome:
    """What became of one case.

    Attributes:
        detail: why it is not right.
        reason: of a refusal, the same for all cases that are refused for one cause.
        operators: what the model handed to the compiler was made of, our decompositions done.
    """

    verdict: Verdict
    detail: str = ""
    reason: str = ""
    operators: frozenset[str] = frozenset()


class Harness(ABC):
    """Runs cases in one warm child, which is replaced when it crashes.

    Attributes:
        prover: "module:class" of the child's side, which has `native`, and what `convert` and `answers` call.
    """

    prover: str

    def __init__(self) -> None:
        self._child: Child | None = None
        self._native: frozenset[str] = frozenset()
        self.operators: frozenset[str] = frozenset()  # of the model last handed to the compiler
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")

    def run(self, case: Path, *, bound: bool = False) -> Outcome:
        """Converts `case`/model.onnx and compares its answers with every stored data set."""
        try:
            model = load_case(case / "model.onnx")
            sets = [data_set(model, folder) for folder in sorted(case.glob("test_data_set_*"))]
            if bound:
                sets = [_bound(model, *sets[0])]
            answers = self.convert_and_run(model, [feeds for feeds, _ in sets])
        except CannotConvertError as error:
            return Outcome("refused", str(error), reason_of(error), self.operators)
        except (InputError, Unfit) as error:
            return Outcome("refused", f"not loaded: {error}", reason_of(error))
        except UsageError as error:
            return Outcome("refused", f"not fed: {error}", "inputs that the target's types do not hold")
        except MachineError as error:
            return Outcome("crash", str(error))
        except Exception as error:
            return Outcome("bug", _place(f"{type(error).__name__}: {error}"))
        for (feeds, expected), answer in zip(sets, answers, strict=True):
            fault = self.fault(expected, answer)
            if fault:
                is_noise = case.name in NOISE and not _fault(expected, answer, NOISE[case.name])
                as_runtime = is_noise or self.is_disputed(model, feeds, answer)
                verdict: Verdict = "disputed" if as_runtime else "wrong"
                return Outcome(verdict, fault)
        return Outcome("right", operators=self.operators)

    def fault(self, expected: dict[str, Array], answer: dict[str, Array]) -> str:
        """The first output that differs, and how; empty if none does."""
        return _fault(expected, answer)

    def is_disputed(self, model: Model, feeds: dict[str, Array], answer: dict[str, Array]) -> bool:
        """Whether an answer that is not the stored one is ONNX Runtime's."""
        return not _fault(reference(model, feeds), answer)

    @abstractmethod
    def convert_and_run(self, model: Model, feeds: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
        """The artefact's answers to each of `feeds`.

        Raises:
            CannotConvertError, MachineError, ChildBug: see the target's converter.
        """

    @property
    def native_ops(self) -> frozenset[str]:
        """The operators that have a lowering."""
        self._running()
        return self._native

    def _call(self, method: str, *args: object) -> Any:
        try:
            return self._running().call(method, *args)
        except MachineError:
            self._stop()
            raise

    def _running(self) -> Child:
        if self._child is None:
            self._child = Child(self.prover, purpose="the converter under test", timeout=120.0)
            self._native = self._child.call("native")
        return self._child

    def _stop(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._folder.cleanup()


def _place(traceback: str) -> str:
    """The last frame in code of ours, and the exception."""
    lines = [line.strip() for line in traceback.strip().splitlines()]
    frames = [line for line in lines if "onnxport/" in line]
    return " ".join([*(frame.rpartition("onnxport/")[2] for frame in frames[-1:]), lines[-1]])


def load_case(path: Path) -> Model:
    proto = onnx.load(path)
    if any(entry.domain == "" and entry.version == 6 for entry in proto.opset_import):
        # What the exporters of 2018 wrote, older than we take; ONNX knows the way to 7.
        return Model(onnx_ir.from_proto(onnx.version_converter.convert_version(proto, 7)), path)
    return Model.load(path)


def _fault(expected: dict[str, Array], answer: dict[str, Array], atol: float = ATOL) -> str:
    """The first output that differs, and how; empty if none does."""
    faults = ((name, difference(value, answer[name], atol=atol)) for name, value in expected.items())
    return next((f"{name}: {fault}" for name, fault in faults if fault), "")


def reference(model: Model, feeds: dict[str, Array]) -> dict[str, Array]:
    """ONNX Runtime's answers."""
    session = onnxruntime.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    names = [spec.name for spec in model.outputs]
    return dict(zip(names, session.run(names, feeds), strict=True))


class Unfit(Exception):
    """A case whose stored data are no tensors (sequences, optionals)."""


def difference(expected: Array, actual: Array, *, atol: float = ATOL) -> str:
    """What onnx's backend test runner would reject about `actual`; empty if nothing."""
    if expected.dtype != actual.dtype:
        return f"dtype {actual.dtype}, expected {expected.dtype}"
    if expected.shape != actual.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if expected.dtype.kind in "biu" or expected.dtype == object:
        return "" if np.array_equal(expected, actual) else _worst(expected, actual)
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    return "" if np.allclose(b, a, rtol=RTOL, atol=atol, equal_nan=True) else _worst(a, b)


def _worst(expected: Array, actual: Array) -> str:
    with np.errstate(all="ignore"):
        gap = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
        excess = gap - RTOL * np.abs(expected.astype(np.float64))
    index = np.unravel_index(int(np.argmax(np.nan_to_num(excess, nan=np.inf))), gap.shape)
    place = tuple(int(i) for i in index)
    return f"{actual[index]} at {place}, expected {expected[index]}"


def data_set(model: Model, folder: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """The inputs and the expected outputs, by name."""
    names = [spec.name for spec in model.inputs], [spec.name for spec in model.outputs]
    inputs, outputs = (
        {name: _array(folder / f"{kind}_{i}.pb") for i, name in enumerate(each)}
        for kind, each in zip(("input", "output"), names, strict=True)
    )
    return inputs, outputs


def _bound(
    model: Model, feeds: dict[str, Array], expected: dict[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Makes constants of all inputs of `model` but the first one; what is left to feed, and what to expect."""
    if not model.graph.inputs:
        return feeds, expected
    kept, *others = (value for value in model.graph.inputs if value.name in feeds)
    if any(feeds[value.name or ""].dtype == object for value in others):
        raise Unfit("strings cannot be bound")
    for value in others:
        value.const_value = onnx_ir.Tensor(feeds[value.name or ""], name=value.name)
        model.graph.register_initializer(value)
    return {kept.name or "": feeds[kept.name or ""]}, expected


def _array(file: Path) -> Array:
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(file.read_bytes())
        array: Array = onnx.numpy_helper.to_array(tensor)
    except Exception as error:
        raise Unfit(f"{file.name} holds no tensor") from error
    return array


def cases() -> dict[str, Path]:
    """The folder of every case, by "collection/test"."""
    return {
        f"{collection}/{folder.name}": folder
        for collection in COLLECTIONS
        for folder in sorted(models.onnx_tests(collection).iterdir())
    }


def run_cases(harness: Harness, right_lists: Mapping[bool, Path], arguments: Sequence[str]) -> None:
    """Runs the cases whose names contain one of the arguments, prints each that is not right."""
    parts = [argument for argument in arguments if not argument.startswith("--")]
    bound = "--bound" in arguments
    verdicts: dict[str, Outcome] = {}
    with harness:
        for name, folder in cases().items():
            if not parts or any(part in name for part in parts):
                verdicts[name] = outcome = harness.run(folder, bound=bound)
                if outcome.verdict != "right":
                    print(
                        f"{outcome.verdict:8} {name:50} {outcome.detail.replace(chr(10), ' | ')}", flush=True
                    )
    for collection in COLLECTIONS:
        counts = Counter(o.verdict for name, o in verdicts.items() if name.startswith(f"{collection}/"))
        print(f"{collection:18} {dict(counts)}")
    if "--write" in arguments:
        right = [name for name, outcome in verdicts.items() if outcome.verdict == "right"]
        right_lists[bound].write_text("\n".join(right) + "\n", encoding="utf-8")
