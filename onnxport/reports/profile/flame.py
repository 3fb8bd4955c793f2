"""Where the time of a run goes, as the page draws it: nodes in the order of execution, as wide as they take time.

A run of many nodes is broken into lines, as text is. The lowest band of a line is the nodes, coloured by operator;
those above are what their ONNX names are nested in ("/encoder/layer.0/Conv"), outermost on top. Nodes too thin to be
seen are joined with their neighbours, so that a drawing of any model has about as many bars as it has room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from onnxport.profiling.report import NodeTime, ProfileReport
from onnxport.reports import wording
from onnxport.reports.charts import WIDTHS, Tick

BAND, LEAF, GAP = 20.0, 40.0, 2.0  # heights
_TOP, _BETWEEN, _BOTTOM = 4.0, 12.0, 16.0
_DEPTH = 4  # bands of names, at most
_TOLD, _ALONE = (
    0.2,
    0.6,
)  # shares: of the time below a band at the least, of names for one node each at the most
_THIN = 2.2  # what is narrower is joined
_LETTER = 5.9  # a letter's width, at most
_NODES, _LINES = 80, 10  # nodes on a line, unless these are more lines
COLOURS = 8
_NAME = 100  # characters


@dataclass(frozen=True)
class Bar:
    """A node, nodes that are too thin for bars of their own, or what several are nested in; `kind` is its colour."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    text: str
    says: str


@dataclass(frozen=True)
class Flame:
    """All of it."""

    width: int
    height: float
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    says: str


def colours(report: ProfileReport) -> Mapping[str, str]:
    """The classes of the operators that take most; the others are "rest"."""
    return {group.name: f"op{number}" for number, group in enumerate(report.by_op[:COLOURS])}


def flames(report: ProfileReport) -> dict[str, Flame]:
    """A drawing for each page of WIDTHS; none where no time was told."""
    if not any(node.ms > 0 for node in report.nodes):
        return {}
    return {page: _flame(report, width) for page, width in WIDTHS.items()}


@dataclass(frozen=True)
class _Span:
    """A node and the share of the run before it."""

    node: NodeTime
    start: float
    scopes: tuple[str, ...]

    @property
    def end(self) -> float:
        return self.start + self.node.ms


class _Sheet:
    """A run on lines of one width: makes bars of what lies between two moments of it."""

    def __init__(self, spans: Sequence[_Span], width: int) -> None:
        wanted = -(-len(spans) // _NODES)
        self.lines = max(1, min(wanted, _LINES if width > 500 else _LINES // 2))
        self.width = width
        self.depth = next((level for level in range(_DEPTH) if _is_idle(spans, level)), _DEPTH)
        self.whole = spans[-1].end
        self.scale = self.lines * width / self.whole
        self.pitch = self.depth * (BAND + GAP) + LEAF + _BETWEEN

    @property
    def height(self) -> float:
        return _TOP + self.lines * self.pitch - _BETWEEN + _BOTTOM

    def bars(self, start: float, end: float, level: int, kind: str, text: str, says: str) -> Iterator[Bar]:
        """One, or several where it goes on on the next line."""
        left, right = start * self.scale, end * self.scale
        while right - left > 0.05:
            line = min(int(left / self.width + 1e-9), self.lines - 1)
            stop = right if line == self.lines - 1 else min(right, (line + 1) * self.width)
            y = _TOP + line * self.pitch + level * (BAND + GAP)
            width, height = stop - left, BAND if level < self.depth else LEAF
            label = _fitting(text, width, tail=level < self.depth)
            x = left - line * self.width
            yield Bar(round(x, 1), round(y, 1), round(width, 2), height, kind, label, says)
            left = max(stop, left + 0.05)


def _flame(report: ProfileReport, width: int) -> Flame:
    spans = list(_spans(report.nodes))
    sheet = _Sheet(spans, width)
    bars = [bar for level in range(sheet.depth) for bar in _scopes(spans, level, sheet)]
    bars += _leaves(spans, sheet, colours(report))
    return Flame(
        width=width,
        height=sheet.height,
        bars=tuple(bars),
        ticks=(Tick(0, "0", "start"), Tick(width, wording.duration(sheet.whole), "end")),
        says=f"{wording.count(len(spans), 'node')} in the order of execution, as wide as they take time",
    )


def _spans(nodes: Sequence[NodeTime]) -> Iterator[_Span]:
    scopes = [scopes_of(node) for node in nodes]
    # What all are nested in says nothing; a band for each level below it that some are in.
    shared = _shared([each for each in scopes if each])
    at = 0.0
    for node, each in zip(nodes, scopes, strict=True):
        yield _Span(node, at, each[shared : shared + _DEPTH])
        at += node.ms


def scopes_of(node: NodeTime) -> tuple[str, ...]:
    """What its first ONNX node is nested in, outermost first: of "/encoder/layer.0/Conv", "encoder" and "layer.0"."""
    name = node.sources[0] if node.sources else ""
    return tuple(part for part in name.split("/")[:-1] if part)


def _shared(paths: Sequence[tuple[str, ...]]) -> int:
    first, last = min(paths, default=()), max(paths, default=())
    count = 0
    while count < min(len(first), len(last)) and first[count] == last[count]:
        count += 1
    return count


def _is_idle(spans: Sequence[_Span], level: int) -> bool:
    """Whether names of this level say little: of little of the time, or hardly any is a neighbour's, too."""
    nested = [span for span in spans if len(span.scopes) > level]
    told = sum(span.node.ms for span in nested)
    names = sum(1 for _ in groupby(span.scopes[: level + 1] for span in nested))
    return told < _TOLD * spans[-1].end or names > _ALONE * len(nested)


def _scopes(spans: Sequence[_Span], level: int, sheet: _Sheet) -> Iterator[Bar]:
    """The names of one level, each as long as nodes in a row are nested in it, where that can be seen."""
    for path, row in groupby(spans, lambda span: span.scopes[: level + 1]):
        nested = list(row)
        start, end = nested[0].start, nested[-1].end
        if len(path) > level and (end - start) * sheet.scale >= _THIN:
            yield from sheet.bars(
                start, end, level, "scope", path[level], f"{shortened('/'.join(path))}: {_took(nested)}"
            )


def _leaves(spans: Sequence[_Span], sheet: _Sheet, kinds: Mapping[str, str]) -> Iterator[Bar]:
    thin: list[_Span] = []
    for span in spans:
        if span.node.ms * sheet.scale >= _THIN:
            yield from _joined(thin, sheet)
            thin = []
            kind = kinds.get(span.node.op, "rest")
            yield from sheet.bars(span.start, span.end, sheet.depth, kind, span.node.op, said(span.node))
        else:
            thin.append(span)
            if (span.end - thin[0].start) * sheet.scale >= _THIN:
                yield from _joined(thin, sheet)
                thin = []
    yield from _joined(thin, sheet)


def _joined(thin: Sequence[_Span], sheet: _Sheet) -> Iterator[Bar]:
    if thin:
        says = said(thin[0].node) if len(thin) == 1 else _took(thin)
        yield from sheet.bars(thin[0].start, thin[-1].end, sheet.depth, "rest", "", says)


def _took(spans: Sequence[_Span]) -> str:
    ms, share = (sum(getattr(span.node, name) for span in spans) for name in ("ms", "share"))
    return f"{wording.count(len(spans), 'node')}, {wording.duration(ms)}, {wording.percent(share)}"


def _fitting(text: str, width: float, *, tail: bool) -> str:
    """What there is room for; of names what is told apart by its end, the end."""
    shown, room = wording.text(text), int((width - 6) / _LETTER)
    if len(shown) <= room:
        return shown
    if room < 4:
        return ""
    return f"…{shown[1 - room :]}" if tail else f"{shown[: room - 1]}…"


def said(node: NodeTime) -> str:
    """A node's figures, by the ONNX nodes that it computes, or by its own name where nothing tells these."""
    name = origin(node) or shortened(node.name)
    return f"{wording.text(node.op)} {name}: {wording.duration(node.ms)}, {wording.percent(node.share)}"


def origin(node: NodeTime) -> str:
    """The ONNX nodes that it computes, three of them by name; empty where that is its own name, or nothing tells."""
    if node.sources in ((), (node.name,)):
        return ""
    shown, rest = wording.cut(node.sources, 3)
    return ", ".join(map(shortened, shown)) + (f" and {rest:,} more" if rest else "")


def shortened(name: str) -> str:
    """A name as text, its middle left out where it is longer than anyone reads."""
    shown = wording.text(name)
    return shown if len(shown) <= _NAME else f"{shown[: _NAME // 2]}…{shown[-_NAME // 2 :]}"
