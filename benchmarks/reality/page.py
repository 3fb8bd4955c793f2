"""Render docs/internals/reality.md from rows: shares by target, causes of what failed, and a row a model."""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.reality.check import NOT_CHECKED, SAME
from benchmarks.reality.conversion import CRASHED, REFUSED, RIGHT, SLOW, UNPROVEN, WRONG, Row
from fixtures import reality

DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "reality.md"
OUTCOMES = (RIGHT, WRONG, UNPROVEN, REFUSED, CRASHED, SLOW)
_WIDTH = 98
_TARGETS = {"ort": "ORT", "tflite": "TFLite", "coreml": "Core ML"}
# A model below 50 MB should not need more.
_SMALL, _SECONDS, _MEGABYTES = 50e6, 120, 4000
_SIZE_RATIO = 1.15

_BY_HAND = "\n## Unseen models\n"

Column = tuple[str, str]


def page(rows: Sequence[Row], about: str = "") -> str:
    """Return the whole page in Markdown.

    Args:
        about: of which commit the results are, and what was not measured.
    """
    columns = sorted({(row.to, row.precision) for row in rows}, key=_order)
    return "\n".join(
        [*_introduction(about), *_shares(rows, columns), *_causes(rows, columns), *_models(rows, columns)]
    )


def by_hand(document: Path) -> str:
    """Return the section of a page that is written by hand: models outside of the list."""
    _, heading, section = document.read_text(encoding="utf-8").partition(_BY_HAND)
    return heading + section


def cause(row: Row) -> str:
    """Return why a row failed, the same for all models that fail for one reason.

    Names and numbers are left out. Of several refused nodes the first one's reason counts.
    """
    lines = [line for line in (row.message or row.check.get("told", "")).splitlines() if line.strip()]
    if not lines:
        return f"exit {row.code} without a word"
    nodes = [line for line in lines[1:] if line.startswith("  ")]
    text = nodes[0].strip() if nodes and "cannot be" in lines[0] else lines[0]
    text = re.sub(r"\S+\.(onnx|ort|tflite|mlpackage)(?![\w.])", "MODEL", text)
    text = re.sub(r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"", "NAME", text)
    text = re.sub(r"\[[\d, ]*\]", "[SIZES]", text)
    text = re.sub(r"(?<!\w)\d[\d.,]*(e[-+]?\d+)?", "N", text)
    return textwrap.shorten(text, 200, placeholder=" ...")


def _order(column: Column) -> tuple[int, int]:
    return ("fp32", "fp16", "int8").index(column[1]), list(_TARGETS).index(column[0])


def _title(column: Column) -> str:
    target, precision = column
    return _TARGETS[target] if precision == "fp32" else f"{_TARGETS[target]} {precision}"


def _introduction(about: str) -> Iterator[str]:
    yield "# Models of other people"
    yield ""
    yield from _wrapped(
        "`python -m benchmarks.reality` converts the trained models of `fixtures/reality.toml` as a stranger would: "
        "with no option first, and if that fails, once more with the `--shape` options that the message names. "
        "Each command is a fresh process with a limit of 300 s. `--page` writes this page from the results file."
    )
    yield ""
    yield from _wrapped(
        "**right**: exit 0, and plain ONNX Runtime or LiteRT's interpreter confirms the answers on random inputs of "
        "another seed, without our code. **wrong**: exit 0, and it does not. **unproven**: exit code 1. **refused**: "
        "codes 2 to 5. **crashed**: 6, 70 or a signal. **slow**: 300 s. Core ML runs on macOS only, so its packages "
        "are right by our own judge alone. int8 is calibrated on 32 photos where the input is a picture, tones where "
        "it is a waveform, else on random values, with `--budget sqnr=15`, and checked on other ones: nodes that lose "
        "more stay float, and the report names them. Seconds are those of a machine with other work."
    )
    yield ""
    if about:
        yield from (*_wrapped(about), "")


def _shares(rows: Sequence[Row], columns: Sequence[Column]) -> Iterator[str]:
    yield from ("## Shares", "")
    yield "| | models | " + " | ".join(OUTCOMES) + " | right, with options | checked |"
    yield "|---" * (len(OUTCOMES) + 4) + "|"
    for column in columns:
        found = _of(rows, column)
        counts = Counter(row.outcome for row in found)
        advised = sum(row.outcome == RIGHT and row.tries > 1 for row in found)
        checked = sum(bool(row.check) and row.check["verdict"] != NOT_CHECKED for row in found)
        share = f"{counts[RIGHT]} ({100 * counts[RIGHT] / len(found):.0f} %)"
        others = " | ".join(str(counts[outcome]) for outcome in OUTCOMES[1:])
        yield f"| {_title(column)} | {len(found)} | {share} | {others} | {advised} | {checked} |"
    yield ""
    yield "| | median seconds | most seconds | most MB | over 120 s or 4 GB | size, median | size above 1.15 |"
    yield "|---|---|---|---|---|---|---|"
    for column in columns:
        found = _of(rows, column)
        ratios = [row.size / reality.entry(row.key).size for row in found if row.size]
        costly = sum(
            (row.seconds > _SECONDS or row.megabytes > _MEGABYTES) and reality.entry(row.key).size < _SMALL
            for row in found
        )
        size = f"{median(ratios):.2f} | {sum(ratio > _SIZE_RATIO for ratio in ratios)}" if ratios else " | "
        seconds, most = [row.seconds for row in found], max(row.megabytes for row in found)
        cost = f"{median(seconds):.1f} | {max(seconds):.0f} | {most:.0f} | {costly}"
        yield f"| {_title(column)} | {cost} | {size} |"
    yield ""


def _causes(rows: Sequence[Row], columns: Sequence[Column]) -> Iterator[str]:
    yield from ("## What failed, by cause", "")
    yield from _wrapped("NAME and N stand for the names and numbers of a message.")
    yield ""
    for column in columns:
        grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
        for row in _of(rows, column):
            if row.outcome != RIGHT:
                agrees = row.outcome == UNPROVEN and row.check.get("verdict") == SAME
                name = row.key.removesuffix(".onnx") + ("*" if agrees else "")
                grouped[row.outcome, cause(row)].append(name)
        if grouped:
            yield from (f"### {_title(column)}", "")
        for (outcome, why), keys in sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0])):
            yield from _wrapped(f"- {len(keys)} {outcome}: {_plain(why)} ({_plain(', '.join(keys))})", "  ")
        if grouped:
            yield ""


def _models(rows: Sequence[Row], columns: Sequence[Column]) -> Iterator[str]:
    found = {(row.key, row.to, row.precision): row for row in rows}
    yield from (
        "## Every model",
        "",
        "The figures are the artefact's size over the source's, and seconds.",
        "",
    )
    yield "| model | computes | MB | " + " | ".join(map(_title, columns)) + " |"
    yield "|---" * (len(columns) + 3) + "|"
    for model in map(reality.entry, reality.keys()):
        cells = " | ".join(_cell(found.get((model.key, *column)), model.size) for column in columns)
        yield f"| {model.key.removesuffix('.onnx')} | {model.what} | {model.size / 1e6:.2g} | {cells} |"
    yield ""


def _cell(row: Row | None, size: int) -> str:
    if row is None:
        return ""
    if row.outcome == RIGHT:
        options = f" `{' '.join(row.options)}`" if row.tries > 1 else ""
        return f"{row.size / size:.2f}, {row.seconds:.0f} s{options}".replace("|", "\\|")
    return f"**{row.outcome}**" if row.outcome in (WRONG, CRASHED) else row.outcome


def _of(rows: Sequence[Row], column: Column) -> list[Row]:
    return [row for row in rows if (row.to, row.precision) == column]


def _plain(text: str) -> str:
    """Return the text with nothing that Markdown would format."""
    return re.sub(r"([<>*_|`\[\]])", r"\\\1", text)


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
