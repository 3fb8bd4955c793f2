"""Whether `onnxport diff` names a fault of a converted model first: the fault in the graph, then the conversion.

python -m tests.faults.difference --list
python -m tests.faults.difference --to tflite --count 60 --seed 1 --keep diff.jsonl
python -m tests.faults.difference onnx/leaking_relu/age --to ort
python -m tests.faults.difference --to ort --draw 5 --count 60    # faults, models and nodes that no row has
python -m tests.faults.difference --right    # the right models: each difference that `diff` shows is a false one

A row counts if its fault lies in one node and survives the conversion: a converter that recognizes a spelled-out
Softmax repairs it, and `validate` proves that file. Between two ONNX files tests/inspection/test_comparison.py asks.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from fixtures import models
from tests.faults import harness
from tests.faults.collection import MODELS, ROWS, Row
from tests.faults.made import MADE

# The commands that make a form, each of what the one before it wrote, and the suffixes of what they write.
FORMS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "tflite": ((".tflite", ("convert", "--to", "tflite")),),
    "ort": ((".ort", ("convert", "--to", "ort")),),
    "coreml": ((".mlpackage", ("convert", "--to", "coreml")),),
    "optimized": ((".optimized.onnx", ("optimize",)),),
    "int8-weights": ((".int8.onnx", ("quantize", "--int8-weights")),),
    "int8-weights-tflite": (
        (".int8.onnx", ("quantize", "--int8-weights")),
        (".tflite", ("convert", "--to", "tflite")),
    ),
}
# Models whose conversion takes seconds.
HEAVY = frozenset(("minilm", "lac", "u2netp", "densenet", "smart-turn", "rec", "det", "bert"))
CANDIDATES = [row for row in ROWS if row.level in ("onnx", "made") and row.model not in HEAVY]


@dataclass(frozen=True)
class Answer:
    """What `diff` says of a row.

    Attributes:
        state: "first", "listed" behind another, "missed", or why the row does not count: "repaired", "several nodes",
            "no place" in the model, "refused" by the converter, "failed" in `diff`.
    """

    id: str
    target: str
    state: str
    where: str = ""
    said: str = ""

    @property
    def counts(self) -> bool:
        return self.state in ("first", "listed", "missed", "failed")


def ask(row: Row, target: str, folder: Path) -> Answer:
    """Put the fault of a row into its model, convert that, and compare it with the right model."""
    right, wrong = folder / "right.onnx", folder / "wrong.onnx"
    if row.level == "made":
        for path, model in zip((right, wrong), MADE[row.fault].models(), strict=True):
            onnx.save(model, path)
        where = MADE[row.fault].where
    else:
        right = models.path(MODELS[row.model])
        broken = onnx.load(right)
        try:
            where = getattr(importlib.import_module(f"tests.faults.{row.family}"), row.fault)(
                broken, harness.draw(row)
            )
        except (ValueError, LookupError, TypeError):  # NoPlace, or it asks for more than the model has
            return Answer(row.id, target, "no place")
        onnx.save(broken, wrong)
    if where is None:
        return Answer(row.id, target, "several nodes")
    try:
        made = form_of(wrong, row, target)
    except AssertionError as error:
        return Answer(row.id, target, "refused", where, str(error)[-200:])
    shape = harness.shape_of(row, target)
    run = harness.command("diff", right, made, "--no-run", "--json", *shape)
    if run.returncode:
        return Answer(row.id, target, "failed", where, run.stderr[-200:])
    found = [each for each in json.loads(run.stdout)["graph"]["changes"] if each["kind"] != "stored"]
    if not found:
        return _ask_run(row, target, right, made, where)
    named = _given(right, where) | _left_out(right, wrong, where)
    guilty = [named & {each["node"]["value"]} for each in found]
    state = "missed" if not any(guilty) else "first" if guilty[0] else "listed"
    return Answer(row.id, target, state, where, _said(found[0]))


def _ask_run(row: Row, target: str, right: Path, made: Path, where: str) -> Answer:
    """Ask what both compute, where nothing differs between the graphs: `diff` does both unless told otherwise."""
    run = harness.command("diff", right, made, "--json", *harness.shape_of(row, target))
    report = json.loads(run.stdout)["run"]["artifacts"][0]["report"]
    if report["verdict"] == "proven":
        return Answer(row.id, target, "repaired", where)
    node = (report.get("diagnosis") or {}).get("node") or {}
    state = "first" if node.get("value") in _given(right, where) else "missed"
    return Answer(row.id, target, state, where, f"run: {node.get('op', 'no node')} {node.get('value', '')!r}")


def form_of(source: Path, row: Row, target: str) -> Path:
    """Make a form of a model."""
    made = source
    for suffix, arguments in FORMS[target]:
        shape = harness.shape_of(row, target) if "convert" in arguments else ()
        output = source.with_suffix(suffix)
        run = harness.command(arguments[0], made, *arguments[1:], "-o", output, "--no-validate", *shape)
        assert run.returncode == 0, f"{row.id}: {run.stderr}"
        made = output
    return made


def ask_right(row: Row, target: str, folder: Path) -> Answer:
    """Compare the right model of a row with what is converted from it: a difference is a false one."""
    right = folder / "right.onnx"
    if row.level == "made":
        onnx.save(MADE[row.fault].models()[0], right)
    else:
        right.write_bytes(models.path(MODELS[row.model]).read_bytes())
    name = row.model or row.fault
    try:
        made = form_of(right, row, target)
    except AssertionError as error:
        return Answer(name, target, "refused", said=str(error)[-200:])
    run = harness.command("diff", right, made, "--no-run", "--json", *harness.shape_of(row, target))
    if run.returncode:
        return Answer(name, target, "failed", said=run.stderr[-200:])
    found = [each for each in json.loads(run.stdout)["graph"]["changes"] if each["kind"] != "stored"]
    return Answer(name, target, "differs" if found else "same", said=_said(found[0]) if found else "")


def _given(path: Path, where: str) -> set[str]:
    graph = onnx.load(path, load_external_data=False).graph
    return {where}.union(*(node.output for node in graph.node if where in node.output))


def _left_out(right: Path, wrong: Path, where: str) -> set[str]:
    """Return what the node reads in the right model, and nothing in the wrong one: `diff` names what was left out."""
    graphs = [onnx.load(path, load_external_data=False).graph for path in (right, wrong)]
    read = {name for node in graphs[1].node for name in node.input} | {each.name for each in graphs[1].output}
    made = {name for node in graphs[0].node for name in node.output}
    own = next((node.input for node in graphs[0].node if where in node.output), ())
    return {name for name in own if name in made and name not in read}


def _said(change: dict[str, Any]) -> str:
    node, details = change["node"], change["details"]
    return f"{node['op']} {node['value']!r}: {details[0]['what'] if details else change['kind']}"[:300]


def _rows(options: argparse.Namespace) -> list[Row]:
    known = {row.id: row for row in ROWS}
    if options.ids:
        return [known[each] for each in options.ids]
    if options.right:
        return list({row.model or row.fault: row for row in CANDIDATES}.values())
    if options.draw is not None:
        return list(drawn(options.draw))
    return random.Random(options.seed).sample(CANDIDATES, min(options.count, len(CANDIDATES)))


def drawn(seed: int) -> Iterator[Row]:
    """Yield faults in models in an order by seed, and at nodes by it: most are in no row of the collection."""
    faults = sorted({(row.family, row.fault) for row in ROWS if row.level == "onnx"})
    names = [name for name in MODELS if name not in HEAVY]
    pairs = [(fault, name) for fault in faults for name in names]
    for (family, fault), name in random.Random(seed).sample(pairs, len(pairs)):
        yield Row(family, fault, name, "onnx", seed)


def _answers(rows: list[Row], options: argparse.Namespace) -> Iterator[Answer]:
    done = set()
    if options.keep and options.keep.exists():
        done = {json.loads(line)["id"] for line in options.keep.read_text(encoding="utf-8").splitlines()}
    for row in rows:
        if (row.model or row.fault if options.right else row.id) not in done:
            with tempfile.TemporaryDirectory() as folder:
                yield (ask_right if options.right else ask)(row, options.to, Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.difference")
    parser.add_argument("ids", nargs="*", help="rows, as --list names them")
    parser.add_argument("--right", action="store_true", help="compare the right models")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--to", choices=FORMS, default="tflite")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--draw", type=int, help="a seed of faults that no row has; --count is of those that count"
    )
    parser.add_argument("--keep", type=Path, help="a file to go on with, one JSON object a line")
    options = parser.parse_args()
    if options.list:
        print("\n".join(row.id for row in CANDIDATES))
        return
    answers: list[Answer] = []
    for answer in _answers(_rows(options), options):
        if answer.state == "no place":
            continue
        answers.append(answer)
        print(f"{answer.state:13} {answer.id}  {answer.where}  {answer.said}", flush=True)
        if options.keep:
            with options.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dataclasses.asdict(answer)) + "\n")
        if options.draw is not None and sum(each.counts for each in answers) >= options.count:
            break
    if options.right:
        print(f"{sum(each.state == 'same' for each in answers)} of {len(answers)} without a difference")
        return
    counted = [answer for answer in answers if answer.counts]
    first = sum(answer.state == "first" for answer in counted)
    print(
        f"{first} of {len(counted)} named first; {len(answers) - len(counted)} do not count", file=sys.stderr
    )


if __name__ == "__main__":
    main()
