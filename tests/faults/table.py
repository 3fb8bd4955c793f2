"""Outcomes as text: a line while they come, a table and the counts at the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from tests.faults.harness import Outcome


def line(outcome: Outcome) -> str:
    return (
        f"{_state(outcome):<10} {outcome.id:<55} {_figure(outcome.noises):>8} x noise  {outcome.reason[:90]}"
    )


def _state(outcome: Outcome) -> str:
    if outcome.found:
        return "found" if outcome.named is not False else "found, not named"
    return "hidden" if outcome.hidden else "NOT FOUND"


def _figure(number: float) -> str:
    return f"{number:.2g}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """The counts that the targets are about."""
    found = [each for each in outcomes if each.found]
    hidden = [each for each in outcomes if each.hidden and not each.found]
    missed = [each for each in outcomes if not each.found and not each.hidden]
    asked = [each for each in found if each.named is not None]
    lines = [
        f"{len(found)} of {len(outcomes)} found, {len(hidden)} hidden by noise, {len(missed)} missed",
        *(f"  hidden: {each.id}" for each in hidden),
        *(
            f"  missed: {each.id} ({_figure(each.noises)} x noise, {_figure(each.share)} of scale)"
            for each in missed
        ),
    ]
    if asked:
        lines.append(f"{sum(bool(each.named) for each in asked)} of {len(asked)} nodes named by debug")
        lines += [f"  {each.id}: {each.where} wanted, named {each.said}" for each in asked if not each.named]
    return "\n".join(lines)


_HEAD = """# Faults, and which are found

Faults in correct models and artefacts, one at a time, checked by `onnxport validate` with its
default settings in a separate process. The harness writes this page, of one run or of several:

    python -m tests.faults --all --keep a.jsonl                # 276 in 11 minutes on 2 cores
    python -m tests.faults ID... --debug --keep b.jsonl        # asks debug, too
    python -m tests.faults --kept a.jsonl b.jsonl -o docs/internals/faults.md

| level | compared |
|---|---|
| onnx | a faulty ONNX graph with the correct one |
| tflite, ort | the faulty graph, converted with `--no-validate`, with the correct ONNX model |
| file | a correct `.tflite` file with the fault in its FlatBuffer, with the ONNX model |
| int8 | a faulty QDQ graph with the correct one of ONNX Runtime's quantizer |
| made | small models for operators that few real models have |

Node and size are drawn by seed from all places where the fault is possible. *Effect, in noises*
is the fault's largest effect on an output, divided by the largest difference between ONNX
Runtime's own answers there (four optimization levels, one thread and two, inputs moved by 1e-7),
measured on other inputs than those of `validate` (`tests/faults/noise.py`). At most 1: noise
hides the fault. 0: these inputs do not show it. *Named* is the answer of `onnxport debug`, for
faults that are found and lie in one node; it is empty where debug was not asked.
"""


def page(outcomes: Sequence[Outcome]) -> str:
    """docs/internals/faults.md: what this is, the counts, and a row per fault."""
    levels = list(dict.fromkeys(each.id.split("/")[0] for each in outcomes))
    counts = ["| level | faults | found | hidden by noise | missed | named |", "|---|---|---|---|---|---|"]
    counts += [
        _counts(level, [each for each in outcomes if each.id.split("/")[0] == level]) for level in levels
    ]
    counts.append(_counts("all", outcomes))
    today = f"Written on {date.today():%Y-%m-%d}."
    return "\n\n".join(
        [f"{_HEAD}\n{today}", "\n".join(counts), "Not found:\n\n" + _missed(outcomes), markdown(outcomes)]
    )


def _counts(level: str, outcomes: Sequence[Outcome]) -> str:
    found = sum(each.found for each in outcomes)
    hidden = sum(each.hidden and not each.found for each in outcomes)
    asked = [each for each in outcomes if each.named is not None]
    named = f"{sum(bool(each.named) for each in asked)} of {len(asked)}"
    return f"| {level} | {len(outcomes)} | {found} | {hidden} | {len(outcomes) - found - hidden} | {named} |"


def _missed(outcomes: Sequence[Outcome]) -> str:
    return "\n".join(
        f"- {each.id}: {_figure(each.noises)} times the noise, {_figure(each.share)} of the output's scale"
        for each in sorted(outcomes, key=lambda each: -each.noises)
        if not each.found
    )


def markdown(outcomes: Sequence[Outcome]) -> str:
    """A table with a row per fault."""
    rows = [
        "| level | fault | model | node | effect, in noises | found | by | named |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        level, fault, *model = each.id.split("/")
        named = {True: "yes", False: f"no: {_cell(each.said, 60)}", None: ""}[each.named]
        where = f"`{_cell(each.where, 60)}`" if each.where else "no single one"
        cells = [level, fault.replace("_", " "), "/".join(model), where, _figure(each.noises)]
        cells += ["yes" if each.found else _state(each).lower(), _cell(each.reason, 90), named]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _cell(text: str, longest: int) -> str:
    """A text that fits a table's cell, without temporary folders."""
    text = " ".join(re.sub(r"\S*/(broken\.\w+)", r"\1", text).replace("|", "/").split())
    return text if len(text) <= longest else text[: longest - 3] + "..."
