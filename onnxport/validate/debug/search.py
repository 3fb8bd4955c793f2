"""Search for the node at fault by bisection, where not every value fits into memory at once.

A round shows a few values ("cuts"), spread over the suspicious part of the graph, and runs the reference's nodes
between them on the candidate's own values. The stretch whose end differs contains the fault, whatever is wrong before
it; the next round spreads its cuts over that stretch. A stretch is everything between a cut and the cuts it is computed
from, branches included. With k cuts in a round, N values take log N / log (k + 1) rounds; one is enough where all
values fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnxport.core.arrays import Array, Feeds
from onnxport.validate.debug.graph import Network
from onnxport.validate.debug.local_error import LocalError, Replay, at_fault
from onnxport.validate.debug.taps import Shown, Sides, layer_figure
from onnxport.validate.report import LayerFigure


@dataclass
class Trail:
    """The findings of a search.

    Attributes:
        feeds: the inputs.
        fault: the value whose node, or group of nodes, is at fault; None if none is.
        group: its nodes, by index in the network.
        given: the values that the last round showed.
        needs: the candidate's values that the fault is computed from.
        layers: the figures of every value that was compared.
        plain: the reference's outputs when each of its nodes runs alone.
        others: further values at fault.
        tapped: the candidate's outputs in the first round.
        untried: the values that could not be computed from the candidate's, and why.
    """

    feeds: Feeds = field(default_factory=dict)
    fault: LocalError | None = None
    group: list[int] = field(default_factory=list)
    given: frozenset[str] = frozenset()
    needs: list[str] = field(default_factory=list)
    layers: dict[str, LayerFigure] = field(default_factory=dict)
    tapped: Mapping[str, Array] = field(default_factory=dict)
    plain: dict[str, Array] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    untried: dict[str, str] = field(default_factory=dict)


def search(
    sides: Sides,
    feeds: Feeds,
    ends: Sequence[str],
    sizes: Mapping[str, int],
    room: int,
    *,
    ranking: bool = False,
) -> Trail:
    """Find the first node at fault on one set of inputs.

    Args:
        ends: the outputs that differ.
        sizes: bytes of each value.
        room: bytes of the values that a round may show.
        ranking: whether to measure every node's loss, and not to search a fault.
    """
    network, trail = sides.network, Trail(feeds)
    suspects, before = _suspects(sides, ends, sizes, room), list[str]()
    further: dict[str, frozenset[int]] = {}
    while True:
        cuts = choose(suspects, sizes, room - sum(sizes[name] for name in (*before, *ends)))
        given = in_order(network, {*before, *cuts, *ends})
        shown = sides.fetch(feeds, given)
        trail.tapped, trail.given = trail.tapped or sides.answers, frozenset(given)
        trail.plain |= {name: shown.reference[name] for name in network.outputs if name in shown.reference}
        replay = Replay(network, given, sizes, sides.rounds)
        targets = [name for name in given if name not in before]
        found = replay.compare(targets, feeds, shown.candidate)
        trail.untried |= replay.untried
        faults = at_fault(found, given)
        fault = _first_output(network, found, faults[0]) if faults else None
        _add_figures(trail, sides, shown, found, given, ranking=ranking)
        if fault is None or ranking:
            return trail
        trail.fault, trail.needs = fault, network.frontier(fault.value, frozenset(given))
        trail.group = network.between(fault.value, frozenset(given))
        further |= {each.value: frozenset(network.between(each.value, frozenset(given))) for each in faults}
        # A longer stretch with the same node in it does not accuse its other nodes.
        trail.others = [name for name, group in further.items() if not group & set(trail.group)]
        inner = _inside(sides, trail.group, given)
        if not inner:
            return trail
        suspects, before, ends = inner, trail.needs, [fault.value]


def _first_output(network: Network, found: Mapping[str, LocalError], fault: LocalError) -> LocalError:
    """Return the first wrong output of the node at fault."""
    outputs = network.node(fault.value).output
    return next(found[name] for name in outputs if name in found and found[name].share > 1)


def choose(suspects: Sequence[str], sizes: Mapping[str, int], room: int) -> list[str]:
    """Choose the values to show: all if they fit into `room` bytes, else as many as fit, at least one.

    They are spread evenly; among neighbours the smallest is chosen.
    """
    count = len(suspects)
    while count:
        cuts = [min(bucket, key=sizes.__getitem__) for bucket in _buckets(suspects, count)]
        if sum(sizes[name] for name in cuts) <= room or count == 1:
            return cuts
        count = count * 3 // 4
    return []


def in_order(network: Network, names: set[str]) -> list[str]:
    return sorted(names, key=network.producers.__getitem__)


def _buckets(suspects: Sequence[str], count: int) -> list[Sequence[str]]:
    """Divide `suspects` into `count` stretches of about the same length; a single one lies around the middle.

    The middle itself comes first, to be chosen where sizes are equal: a cut there halves the rest.
    """
    total = len(suspects)
    if count == 1:
        near = range(total // 2 - total // 16, total // 2 + total // 16 + 1)
        return [[suspects[i] for i in sorted(near, key=lambda i: abs(i - total // 2)) if i < total]]
    return [suspects[total * i // count : total * (i + 1) // count] for i in range(count)]


def _suspects(sides: Sides, ends: Sequence[str], sizes: Mapping[str, int], room: int) -> list[str]:
    """Return every shared value if all fit, for their figures; else those behind the wrong outputs."""
    if sum(sizes[name] for name in sides.shared) <= room:
        return [name for name in sides.shared if name not in ends]
    involved = sides.network.ancestors(ends)
    return [name for name in sides.shared if name in involved and name not in ends]


def _inside(sides: Sides, group: Sequence[int], given: Sequence[str]) -> list[str]:
    """Return the shared values that the nodes of `group` make and that were not shown yet."""
    made = {name for index in group for name in sides.network.nodes[index].output}
    return [name for name in sides.shared if name in made and name not in given]


def _add_figures(
    trail: Trail,
    sides: Sides,
    shown: Shown,
    found: Mapping[str, LocalError],
    given: Sequence[str],
    *,
    ranking: bool,
) -> None:
    """Add the figures of a round; local ones only for stretches that cannot be divided further."""
    known = frozenset(given)
    for name in given:
        is_final = not _inside(sides, sides.network.between(name, known), given)
        local = found[name] if is_final and name in found else None
        if name in trail.layers and local is None:
            continue
        share = None if local is None or ranking else local.share
        own = None if local is None else local.sqnr_db
        trail.layers[name] = layer_figure(sides.network, name, shown, share, own)
