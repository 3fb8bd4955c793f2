"""The flame chart of a run: nodes in the order of execution, as wide as the time that they take.

A run of many nodes is broken into lines, as text is. The lowest band of a line holds the nodes, coloured by operator.
The bands above hold the scopes of their ONNX names ("/encoder/layer.0/Conv"), outermost on top. Neighbouring nodes that
are too thin to see share a bar, so that the chart of any model has about as many bars as it has room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from onnxport.profiling.report import NodeTime, ProfileReport
from onnxport.reports import phrases
from onnxport.reports.phrases import shorten
from onnxport.reports.profile.figures import node_title, scopes_of

WIDTH = 860
BAND, LEAF, GAP = 20.0, 40.0, 2.0  # heights
_TOP, _BETWEEN, _BOTTOM = 4.0, 12.0, 16.0
_DEPTH = 4  # most bands of scopes
_LEAST_TIME = 0.2  # share of the time that has to lie below a band
_MOST_NAMES = 0.6  # names of a band for each of its nodes
_THIN = 2.2  # narrower nodes share a bar
_NODES, _LINES = 80, 10  # nodes on a line, most lines
COLOURS = 8
_LETTER = 6.5  # the mean width of one, of 11 px


@dataclass(frozen=True)
class Bar:
    """A node, thin nodes together, or a scope; `kind` is the class of its colour, `title` shown when pointed at."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    text: str
    title: str

    @property
    def label(self) -> str:
        """As much of `text` as there is room for; empty where that is no word."""
        room = int((self.width - 8) / _LETTER)
        if len(self.text) <= room:
            return self.text
        return f"{self.text[: room - 1].rstrip(' (,')}…" if room >= 4 else ""


@dataclass(frozen=True)
class Flame:
    """A flame chart; `duration` stands at its end."""

    height: float
    bars: tuple[Bar, ...]
    duration: str
    title: str


@dataclass(frozen=True)
class _Span:
    """A node, the time of the run before it, and its scopes."""

    node: NodeTime
    start: float
    scopes: tuple[str, ...]

    @property
    def end(self) -> float:
        return self.start + self.node.ms


def colours(report: ProfileReport) -> Mapping[str, str]:
    """Return the colour classes of the operators that take most time; the others are "rest"."""
    return {group.name: f"op{number}" for number, group in enumerate(report.by_op[:COLOURS])}


def draw(report: ProfileReport) -> Flame | None:
    """Return the flame chart; None where no node was timed."""
    if not any(node.ms > 0 for node in report.nodes):
        return None
    spans = list(_spans(report.nodes))
    sheet = _Sheet(spans)
    bars = [bar for level in range(sheet.depth) for bar in _scope_bars(spans, level, sheet)]
    bars += _node_bars(spans, sheet, colours(report))
    return Flame(
        height=sheet.height,
        bars=tuple(bars),
        duration=phrases.duration(spans[-1].end),
        title=f"{phrases.count(len(spans), 'node')} in the order of execution, as wide as the time that they take",
    )


class _Sheet:
    """A run on lines of one width: makes bars of the time between two moments."""

    def __init__(self, spans: Sequence[_Span]) -> None:
        self.lines = max(1, min(-(-len(spans) // _NODES), _LINES))
        self.depth = next((level for level in range(_DEPTH) if _is_uninformative(spans, level)), _DEPTH)
        self.scale = self.lines * WIDTH / spans[-1].end
        self._pitch = self.depth * (BAND + GAP) + LEAF + _BETWEEN

    @property
    def height(self) -> float:
        return _TOP + self.lines * self._pitch - _BETWEEN + _BOTTOM

    def bars(self, first: _Span, last: _Span, level: int, kind: str, text: str, title: str) -> Iterator[Bar]:
        """Make one bar from the start of `first` to the end of `last`, or several where it crosses lines."""
        left, right = first.start * self.scale, last.end * self.scale
        while right - left > 0.05:
            line = min(int(left / WIDTH + 1e-9), self.lines - 1)
            stop = right if line == self.lines - 1 else min(right, (line + 1) * WIDTH)
            yield Bar(
                x=round(left - line * WIDTH, 1),
                y=round(_TOP + line * self._pitch + level * (BAND + GAP), 1),
                width=round(stop - left, 2),
                height=BAND if level < self.depth else LEAF,
                kind=kind,
                text=text,
                title=title,
            )
            left = max(stop, left + 0.05)


def _spans(nodes: Sequence[NodeTime]) -> Iterator[_Span]:
    scopes = [scopes_of(node) for node in nodes]
    # A scope that all nodes share says nothing.
    shared = _shared_prefix([each for each in scopes if each])
    start = 0.0
    for node, each in zip(nodes, scopes, strict=True):
        yield _Span(node, start, each[shared : shared + _DEPTH])
        start += node.ms


def _shared_prefix(paths: Sequence[tuple[str, ...]]) -> int:
    first, last = min(paths, default=()), max(paths, default=())
    count = 0
    while count < min(len(first), len(last)) and first[count] == last[count]:
        count += 1
    return count


def _is_uninformative(spans: Sequence[_Span], level: int) -> bool:
    """Return whether a band covers little of the time, or has about as many names as nodes."""
    nested = [span for span in spans if len(span.scopes) > level]
    covered = sum(span.node.ms for span in nested)
    names = sum(1 for _ in groupby(span.scopes[: level + 1] for span in nested))
    return covered < _LEAST_TIME * spans[-1].end or names > _MOST_NAMES * len(nested)


def _scope_bars(spans: Sequence[_Span], level: int, sheet: _Sheet) -> Iterator[Bar]:
    """Make the bars of one band, each over the nodes in a row that share the scope."""
    for path, row in groupby(spans, lambda span: span.scopes[: level + 1]):
        nested = list(row)
        if len(path) > level and (nested[-1].end - nested[0].start) * sheet.scale >= _THIN:
            title = f"{shorten('/'.join(path))}: {_totals(nested)}"
            yield from sheet.bars(nested[0], nested[-1], level, "scope", path[level], title)


def _node_bars(spans: Sequence[_Span], sheet: _Sheet, kinds: Mapping[str, str]) -> Iterator[Bar]:
    thin: list[_Span] = []
    for span in spans:
        if span.node.ms * sheet.scale >= _THIN:
            yield from _thin_bar(thin, sheet)
            thin = []
            kind = kinds.get(span.node.op, "rest")
            yield from sheet.bars(span, span, sheet.depth, kind, span.node.op, node_title(span.node))
        else:
            thin.append(span)
            if (span.end - thin[0].start) * sheet.scale >= _THIN:
                yield from _thin_bar(thin, sheet)
                thin = []
    yield from _thin_bar(thin, sheet)


def _thin_bar(thin: Sequence[_Span], sheet: _Sheet) -> Iterator[Bar]:
    if thin:
        title = node_title(thin[0].node) if len(thin) == 1 else _totals(thin)
        yield from sheet.bars(thin[0], thin[-1], sheet.depth, "rest", "", title)


def _totals(spans: Sequence[_Span]) -> str:
    ms, share = (sum(getattr(span.node, name) for span in spans) for name in ("ms", "share"))
    return f"{phrases.count(len(spans), 'node')}, {phrases.duration(ms)}, {phrases.percent(share)}"
