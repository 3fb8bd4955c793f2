"""docs/reference/coverage-*.md: what converts to each target, made of the committed lists; a test holds it to them.

The lists are those of coverage.py: the cases that come out right, the rest with the reason, and of each operator how it
is held and on which element types it was measured right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx

from onnxport.optimizers.opset import OLDEST_OPSET
from tests.conformance import coreml, tflite
from tests.conformance.harness import COLLECTIONS, cases
from tests.conformance.onnxruntime import RIGHT as ORT_RIGHT

NEWEST_OPSET = 26  # what ONNX Runtime 1.31 runs
_MOST_REASONS = 3
_DOMAINS = {
    "": "ONNX",
    "ai.onnx.ml": "ai.onnx.ml: trees, linear models and preprocessors",
    "com.microsoft": "com.microsoft: what exporters and quantizers emit",
}


@dataclass(frozen=True)
class Rest:
    """A case that did not come out right."""

    verdict: str
    reason: str


@dataclass(frozen=True)
class Operator:
    """What was measured of an operator; `how` is "native", "decomposed", "folded" or several of them."""

    how: str
    dtypes: tuple[str, ...]


_HEAD = """\
# What converts to {title}, operator by operator

Written by `make conformance`, which runs ONNX's own tests (those of the wheel onnx==1.20.1) through the converter; no
row is made by hand. **Right** is what onnx's own backend test accepts: the same element type, shape and NaN pattern,
integers exact, floats within the test's tolerance of the stored answer. **Refused** is exit 3 with a reason.
**Disputed** is ONNX Runtime's answer where the stored one is another. Node tests count that ONNX Runtime passes itself.
{how}
Every test runs twice: with every input given at run time, so that nothing can be computed at conversion; and with all
inputs but the first as constants, as weights, axes and sizes are in real models ("bound").
"""


_GPU = """\
## With `--fit gpu`, on LiteRT's GPU runtime

The node tests whose first input is float32, all inputs but the first as constants, converted with `--fit gpu` and run
on SwiftShader. **Right** is within 1e-3 of the answer and 2e-4 of the largest, since the driver's sine is no better; of
tests that ONNX Runtime answers otherwise, its answer counts (**disputed**).
"""

_LEGEND = """\
*native*: a lowering of our own; *decomposed*: rewritten into simpler operators first; *folded*: computed at
conversion, from constants. Element types are those of the data operand on which the operator was measured right, in
these tests, in the types' sweep and in random nodes. Where the third column is empty, nothing of the operator converts.
Tests: right with all inputs at run time, right with all but the first bound, and of how many.
"""


@dataclass(frozen=True)
class Page:
    """One target's page and the lists that it is made of.

    Attributes:
        title: the target's name in words.
        stem: in the names of its files.
        right_lists: the cases that come out right, fed and bound.
        how: what else a reader has to know of what ran, a paragraph or nothing.
        accelerated: the cases on an accelerator's runtime, or None for a target without one.
    """

    title: str
    stem: str
    right_lists: Mapping[bool, Path]
    how: str = ""
    accelerated: Path | None = None

    @property
    def path(self) -> Path:
        return Path(__file__).parents[2] / "docs" / "reference" / f"coverage-{self.stem}.md"

    @property
    def rest_lists(self) -> Mapping[bool, Path]:
        """The cases that are not right, with the reason."""
        return {bound: self._list(f"rest{'_bound' if bound else ''}") for bound in (False, True)}

    @property
    def operators(self) -> Path:
        """What was measured of each operator."""
        return self._list("operators")

    def _list(self, name: str) -> Path:
        return Path(__file__).with_name(f"{self.stem}_{name}.txt")

    def write_rest(self, rest: Mapping[str, Rest], *, bound: bool) -> None:
        """Writes the list of cases that are not right, with the reason."""
        write_rests(self.rest_lists[bound], rest)

    def write_operators(self, operators: Mapping[str, Operator]) -> None:
        """Writes what was measured of each operator."""
        _write(self.operators, ((op, each.how, " ".join(each.dtypes)) for op, each in operators.items()))

    def write_accelerated(self, found: Mapping[str, Rest]) -> None:
        """Writes the list of cases on the accelerator's runtime."""
        assert self.accelerated is not None
        write_rests(self.accelerated, found)

    def rendered(self) -> str:
        """The page."""
        for read in (_verdicts_of, _rest_of, _ort_right):
            read.cache_clear()
        return (
            "\n".join(
                [self._head(), *self._summary(), *self._accelerator(), *self._reasons(), *self._operators()]
            )
            + "\n"
        )

    def _head(self) -> str:
        return _HEAD.format(title=self.title, how=f"\n{self.how}" if self.how else "")

    def _summary(self) -> Iterator[str]:
        yield "| tests | inputs | of | right | disputed | refused | wrong |"
        yield "|---|---|---|---|---|---|---|"
        everything = list(cases())
        for collection in COLLECTIONS:
            names = [name for name in everything if name.startswith(f"{collection}/")]
            if collection == "node":
                names = [name for name in names if name in _ort_right()]
            for bound in (False, True):
                counts = Counter(self._verdicts(bound)[name] for name in names)
                known = counts["right"], counts["disputed"], counts["refused"]
                how = "bound" if bound else "all at run time"
                numbers = " | ".join(f"{count:,}" for count in (len(names), *known, len(names) - sum(known)))
                yield f"| {collection} | {how} | {numbers} |"
        yield ""

    def _accelerator(self) -> Iterator[str]:
        if not (found := self._on_accelerator()):
            return
        counts = Counter(each.verdict for each in found.values())
        sound = [counts[verdict] for verdict in ("right", "disputed", "refused")]
        wrong = len(found) - sum(sound)
        yield _GPU
        yield "| of | compiled whole | right | disputed | refused | wrong |"
        yield "|---|---|---|---|---|---|"
        numbers = (len(found), len(found) - counts["refused"], *sound, wrong)
        yield f"| {' | '.join(f'{count:,}' for count in numbers)} |\n"
        yield "| refused because of | node tests |"
        yield "|---|---|"
        causes = Counter(_first_cause(each.reason) for each in found.values() if each.verdict == "refused")
        for reason, count in sorted(causes.items(), key=lambda item: (-item[1], item[0])):
            yield f"| {_cell(reason)} | {count} |"
        yield ""

    def _on_accelerator(self) -> Mapping[str, Rest]:
        if self.accelerated is None or not self.accelerated.exists():
            return {}
        return _rest_of(self.accelerated)

    def _accelerator_cells(self, names: list[str]) -> list[str]:
        """Right (as ONNX Runtime's answer), refused and wrong of an operator's tests."""
        if not (found := self._on_accelerator()):
            return []
        counts = Counter(found[name].verdict for name in names if name in found)
        right, refused = counts["right"] + counts["disputed"], counts["refused"]
        total = counts.total()
        return [f"{right} / {refused} / {total - right - refused}" if total else ""]

    def _reasons(self) -> Iterator[str]:
        yield "## Why node tests are refused\n"
        yield "All inputs at run time; a test that has several reasons counts under the first.\n"
        yield "| refused because of | node tests |"
        yield "|---|---|"
        names = [name for name in _ort_right() if self._verdicts(False)[name] == "refused"]
        counts = Counter(_first_cause(self.rest(False)[name].reason) for name in names)
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            yield f"| {_cell(reason)} | {count} |"
        yield ""

    def _operators(self) -> Iterator[str]:
        measured, tests = self._measured(), _tests_of_operators()
        yield "## Operators\n"
        yield _LEGEND
        for domain, title in _DOMAINS.items():
            yield f"### {title}\n"
            gpu = " on the GPU |" if self._on_accelerator() else ""
            yield f"| operator | opsets | held as | element types | right | bound | of |{gpu} refused because of |"
            yield f"|---|---|---|---|---|---|---|{'---|' if gpu else ''}---|"
            for op, opsets in _names_of(domain, measured):
                known = measured.get(op)
                *counts, reasons = self._test_cells(op, tests.get(op, []))
                cells = [
                    f"`{op.rpartition('::')[2]}`",
                    opsets,
                    known.how if known else "",
                    " ".join(known.dtypes) if known else "",
                    *counts,
                    *self._accelerator_cells(tests.get(op, [])),
                    reasons,
                ]
                yield f"| {' | '.join(cells)} |"
            yield ""

    def _test_cells(self, op: str, names: list[str]) -> list[str]:
        """Right, right where bound, of how many, and the causes of refusals, the frequent ones first."""
        counted = [name for name in names if name in _ort_right()]
        right = [sum(self._verdicts(bound)[name] == "right" for name in counted) for bound in (False, True)]
        others = self.rest(False)
        # Where ONNX Runtime passes no test of the operator, the others tell why it is refused.
        refused = [others[name].reason for name in counted or names if name in others]
        causes = Counter(cause for reason in refused for cause in reason.split("; ") if cause)
        shown = [_cell(cause.removeprefix(f"{op}: ")) for cause, _ in causes.most_common(_MOST_REASONS)]
        more = len(causes) - len(shown)
        reasons = "; ".join([*shown, *([f"{more} more"] if more else [])])
        return [*map(str, right), str(len(counted)), reasons] if counted else ["", "", "", reasons]

    def _verdicts(self, bound: bool) -> dict[str, str]:
        return _verdicts_of(self.right_lists[bound], self.rest_lists[bound])

    def rest(self, bound: bool) -> dict[str, Rest]:
        """The cases that did not come out right."""
        return _rest_of(self.rest_lists[bound])

    def _measured(self) -> dict[str, Operator]:
        return {op: Operator(how, tuple(dtypes.split())) for op, how, dtypes in _rows(self.operators)}


TFLITE = Page(
    "TFLite",
    "tflite",
    tflite.RIGHT_LISTS,
    accelerated=Path(__file__).with_name("tflite_gpu.txt"),
)
COREML = Page(
    "Core ML",
    "coreml",
    coreml.RIGHT_LISTS,
    how="""\
Converted for iOS17 in float32 and **evaluated as Apple documents MIL's operators**, by onnxport's own evaluator:
Core ML itself runs on macOS only, and did not take part (docs/guide/coreml.md says what that proves).
""",
)
PAGES = {page.stem: page for page in (TFLITE, COREML)}


def _first_cause(reason: str) -> str:
    cause = reason.partition("; ")[0]
    return cause.partition(": ")[2] or cause


def _names_of(domain: str, measured: Mapping[str, Operator]) -> list[tuple[str, str]]:
    """The operators of a domain with the opsets in which they exist; of com.microsoft those that we know."""
    if domain == "com.microsoft":
        return [(op, "1") for op in sorted(measured) if op.startswith(f"{domain}::")]
    versions: dict[str, list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == domain and schema.since_version <= NEWEST_OPSET:
            versions.setdefault(schema.name, []).append(schema)
    prefix = f"{domain}::" if domain else ""
    spans = ((f"{prefix}{name}", _opsets(domain, versions[name])) for name in sorted(versions))
    return [(op, span) for op, span in spans if span]


def _opsets(domain: str, versions: list[onnx.defs.OpSchema]) -> str:
    """ "7–26"; empty for what was gone before the oldest that we take."""
    oldest, newest = (1, 5) if domain else (OLDEST_OPSET, NEWEST_OPSET)
    first = max(oldest, min(schema.since_version for schema in versions))
    last = min((schema.since_version - 1 for schema in versions if schema.deprecated), default=newest)
    return f"{first}–{last}" if first <= last else ""


def _tests_of_operators() -> dict[str, list[str]]:
    """All node tests of each operator; those of its expanded form, which hold other nodes, go by their name."""
    found = {}
    for name, folder in cases().items():
        if name.startswith("node/"):
            nodes = onnx.load(folder / "model.onnx", load_external_data=False).graph.node
            found[name] = _qualified(nodes[0]) if len(nodes) == 1 else ""
    tests: dict[str, list[str]] = {}
    for name, op in found.items():
        plain = name.partition("_expanded")[0]
        tests.setdefault(found.get(plain, "") if plain != name else op, []).append(name)
    return tests


def _qualified(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


@cache
def _ort_right() -> dict[str, None]:
    return dict.fromkeys(ORT_RIGHT.read_text(encoding="utf-8").split())


def _rows(file: Path) -> Iterator[list[str]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        yield line.split("\t")


def _write(file: Path, rows: Iterable[tuple[str, ...]]) -> None:
    file.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def write_rests(file: Path, found: Mapping[str, Rest]) -> None:
    """Write a list of cases with their verdicts and reasons."""
    _write(file, ((each.verdict, name, each.reason) for name, each in found.items()))


def read_rests(file: Path) -> dict[str, Rest]:
    """Read what `write_rests` wrote."""
    return {name: Rest(verdict, reason) for verdict, name, reason in _rows(file)}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


@cache
def _verdicts_of(right_list: Path, rest_list: Path) -> dict[str, str]:
    right = dict.fromkeys(right_list.read_text(encoding="utf-8").split(), "right")
    return right | {name: each.verdict for name, each in _rest_of(rest_list).items()}


@cache
def _rest_of(rest_list: Path) -> dict[str, Rest]:
    return read_rests(rest_list)
