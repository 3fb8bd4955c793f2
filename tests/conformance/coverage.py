"""Runs everything that says what converts to a target, and writes it down: `make conformance`.

    python -m tests.conformance.coverage [tflite] [coreml] [gpu]

All of ONNX's tests go through one warm worker, fed and bound, then com.microsoft's operators, and for TFLite every
element type of the types' sweep and a few nodes of each random family. What comes of it are lists, and
docs/reference/coverage-*.md made of the lists alone (page.py). The GPU's column is measured where there is a Vulkan
device (gpu.py, which can do it in parts), else it stays. Ends with 1 if anything is wrong, crashed or is a bug.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime

from onnxport.converters.lowering import qualified_op
from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.optimizers.decomposition import rewritten_ops
from onnxport.runtimes import vulkan
from tests.conformance import gpu
from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import Array, Harness, Outcome, cases
from tests.conformance.page import PAGES, Operator, Page, Rest
from tests.conformance.tflite import Conformance
from tests.converters.tflite import test_element_types, test_random_nodes, test_random_operands
from tests.optimizers import rewritten, test_microsoft

_FAMILY_SEEDS = 5
_MAY_BE = ("right", "refused", "disputed")


class Operators:
    """What was measured right of each operator: how it got into the file, and on which element types."""

    def __init__(self) -> None:
        self.how: defaultdict[str, set[str]] = defaultdict(set)
        self.dtypes: defaultdict[str, set[str]] = defaultdict(set)

    def right(self, model: Model, compiled: frozenset[str]) -> None:
        """Takes down a model that came out right, and what of it was handed to the compiler."""
        for node in model.graph:
            op = qualified_op(node)
            if op in compiled:
                self.how[op].add("native")
            elif len(model.graph) == 1:  # of several, one may have been optimized away
                self.how[op].add("decomposed" if compiled else "folded")
            if dtype := _data_type(node):
                self.dtypes[op].add(dtype)

    def rows(self, native: frozenset[str]) -> dict[str, Operator]:
        """By operator; those that nothing was measured of are listed where they have a lowering or a rewriting."""
        untested = dict.fromkeys(rewritten_ops(), "decomposed, not tested")
        untested |= dict.fromkeys(native, "native, not tested")
        return {
            op: Operator(
                " or ".join(sorted(self.how[op], reverse=True)) or untested.get(op, ""),
                tuple(sorted(self.dtypes[op])),
            )
            for op in sorted({*self.how, *untested})
        }


class _Watched(Harness):
    """Remembers the last model that came through; stands before a target's harness."""

    came_through: Model | None = None

    def convert_and_run(
        self, model: Model, feeds: Sequence[dict[str, Array]], *options: Any
    ) -> list[dict[str, Array]]:
        self.came_through = None
        answers: list[dict[str, Array]] = super().convert_and_run(model, feeds, *options)  # type: ignore[safe-super]
        self.came_through = model
        return answers


class _Tflite(_Watched, Conformance):
    pass


class _Coreml(_Watched, CoremlConformance):
    pass


def measure(page: Page) -> bool:
    """Runs all and writes the lists; whether everything was right, refused or disputed."""
    operators, outcomes = Operators(), {}
    with _HARNESSES[page.stem]() as conformance:
        for bound in (False, True):
            found = _run_cases(conformance, operators, bound=bound)
            outcomes |= {f"{name}, bound" if bound else name: outcome for name, outcome in found.items()}
            _write_lists(page, found, bound=bound)
        faults = _sweep_microsoft(conformance, operators)
        if isinstance(conformance, _Tflite):
            faults += _sweep_types(conformance, operators)
            faults += _sweep_families(conformance, operators)
        page.write_operators(operators.rows(conformance.native_ops))
    faults += [f"{name}: {o.verdict}, {o.detail}" for name, o in outcomes.items() if o.verdict not in _MAY_BE]
    for fault in faults:
        print(fault)
    return not faults


def _run_cases(conformance: _Watched, operators: Operators, *, bound: bool) -> dict[str, Outcome]:
    found = {}
    for name, folder in cases().items():
        found[name] = outcome = conformance.run(folder, bound=bound)
        if outcome.verdict == "right":
            assert conformance.came_through is not None
            operators.right(conformance.came_through, outcome.operators)
    print(
        "bound" if bound else "fed", dict(Counter(outcome.verdict for outcome in found.values())), flush=True
    )
    return found


def _sweep_types(conformance: _Tflite, operators: Operators) -> list[str]:
    faults = []
    casts = {"Cast": (lambda dtype: [np.ones(3, dtype)], {"to": onnx.TensorProto.FLOAT})}
    for op, (operands, attributes) in (test_element_types.OPS | casts).items():
        for dtype in map(np.dtype, test_element_types.TYPES):
            if (op, dtype.name) in test_element_types.UNDEFINED:
                continue
            conformance.came_through = None
            fault = test_element_types.fault(conformance, op, operands(dtype), attributes)
            faults += _taken_down(conformance, operators, fault)
    return faults


def _sweep_families(conformance: _Tflite, operators: Operators) -> list[str]:
    faults = []
    for families in (test_random_nodes.FAMILIES, test_random_operands.FAMILIES):
        for family in families:
            for seed in range(_FAMILY_SEEDS):
                conformance.came_through = None
                fault = test_random_nodes.check(conformance, family, seed, families=families)
                faults += _taken_down(conformance, operators, fault)
    return faults


def _sweep_microsoft(conformance: _Watched, operators: Operators) -> list[str]:
    faults = []
    for case in test_microsoft.CASES:
        model, feeds = test_microsoft.made(case)
        conformance.came_through = None
        try:
            (answer,) = conformance.convert_and_run(model, [feeds])
        except CannotConvertError:
            continue
        differs = rewritten.differences(
            rewritten.run(model, feeds), list(answer.values()), atol=max(case.atol, 1e-4)
        )
        faults += _taken_down(conformance, operators, f"{case}: {differs}" if differs else "")
    return faults


def _taken_down(conformance: _Watched, operators: Operators, fault: str) -> list[str]:
    if fault:
        return [fault]
    if conformance.came_through is not None:
        operators.right(conformance.came_through, conformance.operators)
    return []


def _write_lists(page: Page, found: dict[str, Outcome], *, bound: bool) -> None:
    right = [name for name, outcome in found.items() if outcome.verdict == "right"]
    page.right_lists[bound].write_text("\n".join(right) + "\n", encoding="utf-8")
    rest = {
        name: Rest(outcome.verdict, outcome.reason)
        for name, outcome in found.items()
        if outcome.verdict != "right"
    }
    page.write_rest(rest, bound=bound)


def _data_type(node: onnx_ir.Node) -> str | None:
    """The element type of the node's data: of the operand that may be of the most types, where ONNX says so."""
    operands, index = [*node.inputs], 0
    if node.domain in ("", "ai.onnx", "ai.onnx.ml") and onnx.defs.has(node.op_type, node.domain):
        schema = onnx.defs.get_schema(node.op_type, node.domain)
        operands, index = [*node.inputs, *node.outputs], _widest(schema, len(node.inputs))
    value = operands[index] if index < len(operands) else None
    if value is None or value.dtype is None:
        return None
    return {"FLOAT": "float32", "DOUBLE": "float64"}.get(value.dtype.name, value.dtype.name.lower())


def _widest(schema: onnx.defs.OpSchema, inputs: int) -> int:
    """The place among inputs and outputs of a node with so many inputs; a variadic operand is in the first's."""
    widths = {each.type_param_str: len(each.allowed_type_strs) for each in schema.type_constraints}
    places = {i: port.type_str for i, port in enumerate(schema.inputs) if i < inputs}
    places |= {inputs + i: port.type_str for i, port in enumerate(schema.outputs)}
    return max(places, key=lambda place: (widths.get(places[place], 0), -place), default=0)


_HARNESSES: dict[str, type[_Tflite] | type[_Coreml]] = {"tflite": _Tflite, "coreml": _Coreml}


def main(stems: Sequence[str]) -> int:
    """Measures, and writes the pages."""
    onnxruntime.set_default_logger_severity(3)
    are_sound = [_measure_gpu()] if not stems or "gpu" in stems else []
    are_sound += [_written(PAGES[stem]) for stem in stems or PAGES if stem != "gpu"]
    return 0 if all(are_sound) else 1


def _measure_gpu() -> bool:
    page = PAGES["tflite"]
    if lacking := vulkan.lacking():
        print(f"the GPU's column stays as it is: {lacking}")
        return True
    found = gpu.measure()
    page.write_accelerated(found)
    page.path.write_text(page.rendered(), encoding="utf-8")
    gpu.KEPT.unlink()
    return all(each.verdict in _MAY_BE for each in found.values())


def _written(page: Page) -> bool:
    start = time.perf_counter()
    is_sound = measure(page)
    page.path.write_text(page.rendered(), encoding="utf-8")
    print(f"docs/{page.path.name} and its lists are written, {time.perf_counter() - start:.0f} s")
    return is_sound


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
