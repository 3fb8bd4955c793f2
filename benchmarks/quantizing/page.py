"""The page of a run: tables of cost, memory, accuracy and speed, each with its target and whether that is met."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.quantizing.figures import OURS, Figures
from benchmarks.quantizing.subjects import SUBJECTS

DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "benchmarks-quantize.md"
MINMAX = "ours, minmax"

# (ours, the peer's tool, the most that ours may take of its processor seconds)
COST_TARGETS = ((OURS, "ort-minmax", 1.0), (OURS, "ort-percentile", 0.25), (MINMAX, "ort-minmax", 0.6))
_GROWTH = 1.05  # peak memory at the most samples over that at the fewest
_SPEED = 0.95  # of ONNX Runtime's speed-up
_SLACK = 1.0  # dB below the best peer
# Whom the issue names as those to hold to on the models without a gain of their own.
_BEST_OF = ("ort-minmax", "ort-percentile", "ort-entropy", "nncf", "neural-compressor")

Found = Mapping[str, Mapping[str, Figures]]  # model -> tool


def page(record: Mapping[str, Any]) -> str:
    """The whole page in Markdown."""
    found: dict[str, dict[str, Figures]] = {}
    for row in record["figures"]:
        figures = Figures.read(row)
        found.setdefault(figures.model, {})[figures.tool] = figures
    return (
        "\n".join([*_head(record), *_costs(found), *_memory(found), *_accuracy(found), *_speed(found)]) + "\n"
    )


def _head(record: Mapping[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    loads = [load[0] for load in record["load"]]
    yield from (
        "# Quantizing, beside the peers",
        "",
        "Made by `python -m benchmarks.quantize --write`; its head says how to install the peers.",
        f"Versions: {versions}. {record['cores']} cores, load {min(loads):.1f} to {max(loads):.1f}.",
        "The peers run at their defaults, scales per channel, on a copy that ONNX Runtime's preprocessing made.",
    )
    if record["missing"]:
        yield f"Not installed, so left out: {', '.join(record['missing'])}."


def _costs(found: Found) -> Iterator[str]:
    yield from (
        "",
        "## Cost",
        "",
        "Processor seconds from the float file to the written one, without imports, final proof and latency report: of",
        "the peers the call after its imports, of ours the installed command less a process that only imports. Medians",
        "of rounds; ratios round by round, with their 95 % interval.",
        "",
        "| model | ours / its | ratio | target | met | ours s | its s |",
        "|---|---|---|---|---|---|---|",
    )
    for model, tools in found.items():
        if SUBJECTS[model].cost:
            for mine, its, most in COST_TARGETS:
                if mine in tools and its in tools and tools[mine].made and tools[its].made:
                    ratio = tools[mine].over(tools[its])
                    yield (
                        f"| {model} | {mine} / {its} | {ratio} | at most {most} | {_met(ratio.median <= most)} "
                        f"| {tools[mine].cpu:.2f} | {tools[its].cpu:.2f} |"
                    )
    tools = _tools(found)
    yield from ("", "All tools, processor seconds and peak MB:", "", _row("model", tools), _rule(tools))
    for model, by_tool in found.items():
        yield _row(model, [_cost(by_tool.get(tool)) for tool in tools])


def _memory(found: Found) -> Iterator[str]:
    yield from (
        "",
        "## Memory",
        "",
        "Peak MB of all processes of the command by number of samples, files mapped included.",
        "",
    )
    yield from ("| model | tool | 16 | 256 | growth | target | met |", "|---|---|---|---|---|---|---|")
    for model, tools in found.items():
        for tool, figures in tools.items():
            if len(figures.peaks) > 1:
                few, many = (figures.peaks[count] for count in sorted(figures.peaks, key=int))
                cells = [f"{few:.0f}", f"{many:.0f}", f"{many / few:.3f}"]
                if tool == OURS:
                    its = tools["ort-minmax"].peaks["256"] if "ort-minmax" in tools else math.inf
                    met = many <= _GROWTH * few and many < its
                    cells += [f"at most {_GROWTH}, below ORT MinMax's", _met(met)]
                yield _row(model, [tool, *cells, *([] if tool == OURS else ["", ""])])


def _accuracy(found: Found) -> Iterator[str]:
    tools = _tools({model: by_tool for model, by_tool in found.items() if SUBJECTS[model].scored})
    yield from (
        "",
        "## Accuracy",
        "",
        "SQNR of the outputs against the float model's in dB (mean over outputs) on samples not used in calibration,",
        "and the share of rows whose largest element is the same one; by one scorer for all that knows no tool.",
        "",
        _row("model", [*tools, "target", "met"]),
        _rule([*tools, "", ""]),
    )
    for model, by_tool in found.items():
        if SUBJECTS[model].scored:
            yield _row(
                model, [*(_score(by_tool.get(tool)) for tool in tools), *_accuracy_target(model, by_tool)]
            )


def _accuracy_target(model: str, by_tool: Mapping[str, Figures]) -> tuple[str, str]:
    subject = SUBJECTS[model]
    if subject.most_lost is not None:
        lost = by_tool[OURS].score.lost if OURS in by_tool else None
        said = f"under {subject.most_lost:.0f} points lost"
        return ("", "") if lost is None else (said, _met(lost < subject.most_lost))
    if subject.text:
        named, more = ["ort-dynamic"], 0.0
        mine = max((by_tool[tool].score.sqnr for tool in by_tool if tool.startswith(OURS)), default=math.nan)
    else:
        named, more = (["ort-minmax"], subject.gain) if subject.gain else (list(_BEST_OF), -_SLACK)
        mine = by_tool[OURS].score.sqnr if OURS in by_tool else math.nan
    theirs = [by_tool[tool].score.sqnr for tool in named if tool in by_tool]
    known = [each for each in theirs if math.isfinite(each)]
    if not known or math.isnan(mine):
        return "", ""
    least = max(known) + more
    return f"at least {least:.1f}", _met(mine >= least)


def _speed(found: Found) -> Iterator[str]:
    yield from (
        "",
        "## Speed",
        "",
        "Times as fast as the float model in ONNX Runtime, 2 threads, in turns.",
        "",
    )
    yield from ("| model | ours | ort-minmax | target | met |", "|---|---|---|---|---|")
    for model, tools in found.items():
        mine, its = (tools[tool].speed_up if tool in tools else None for tool in (OURS, "ort-minmax"))
        if mine and its:
            least = _SPEED * its.median
            yield _row(model, [str(mine), str(its), f"at least {least:.2f}", _met(mine.median >= least)])


def _tools(found: Found) -> list[str]:
    return list(dict.fromkeys(tool for by_tool in found.values() for tool in by_tool))


def _cost(figures: Figures | None) -> str:
    if figures is None:
        return ""
    return (
        f"{figures.cpu:.1f} s, {figures.peak:.0f} MB"
        if figures.made
        else f"**no**: {_said(figures.costs[-1].said)}"
    )


def _score(figures: Figures | None) -> str:
    if figures is None:
        return ""
    if not figures.made or figures.score.said:
        return f"**no**: {_said(figures.score.said or figures.costs[-1].said)}"
    lost = "" if figures.score.lost is None else f", {figures.score.lost:.1f} points"
    return f"{figures.score.sqnr:.1f}, {figures.score.agreement:.1%}{lost}"


def _said(text: str) -> str:
    return text.replace("|", "/")[:60]


def _met(holds: bool) -> str:
    return "yes" if holds else "**no**"


def _row(first: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([first, *cells])} |"


def _rule(cells: Sequence[str]) -> str:
    return "|" + "---|" * (len(cells) + 1)
