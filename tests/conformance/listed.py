"""What the committed lists promise, held against a run of some cases or of all."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any

import onnx
import pytest

from tests.conformance.harness import Harness, Outcome, cases
from tests.conformance.page import Page

SHARE = 10  # every run takes one in so many, the same ones
SOUND = ("right", "refused", "disputed")


def case_per_operator(page: Page) -> list[Any]:
    """Return parameters `name, bound`: of each operator the first right case, and the last one bound."""
    chosen = []
    for bound, place in ((False, 0), (True, -1)):
        right = set(page.right_lists[bound].read_text(encoding="utf-8").split())
        for names in _names_by_operator().values():
            held = [name for name in names if name in right]
            if held:
                kind = "bound" if bound else "fed"
                chosen.append(pytest.param(held[place], bound, id=f"{held[place].partition('/')[2]}-{kind}"))
    return chosen


@cache
def _names_by_operator() -> dict[tuple[str, str], list[str]]:
    """Return the cases of one node."""
    found = defaultdict(list)
    for name, folder in cases().items():
        nodes = onnx.load(folder / "model.onnx").graph.node
        if len(nodes) == 1:
            found[nodes[0].domain, nodes[0].op_type].append(name)
    return found


def sample_faults(harness: Harness, page: Page, bound: bool, cache: pytest.Cache) -> dict[str, str]:
    """The faults of a sample, and of what failed last."""
    folders = cases()
    failed_last = [name for name in cache.get(_place(page, bound), []) if name in folders]
    sample = random.Random(0).sample(list(folders), len(folders) // SHARE)
    return _faults(harness, page, {*sample, *failed_last}, bound, cache)


def all_faults(harness: Harness, page: Page, bound: bool, cache: pytest.Cache) -> dict[str, str]:
    return _faults(harness, page, cases(), bound, cache)


def check_lists(page: Page, bound: bool) -> None:
    """The lists hold every case once, none that is wrong, and a reason for each refusal."""
    right = page.right_lists[bound].read_text(encoding="utf-8").split()
    rest = page.rest(bound)
    assert sorted([*right, *rest]) == sorted(cases())
    assert {name: each.verdict for name, each in rest.items() if each.verdict not in SOUND} == {}
    assert [name for name, each in rest.items() if each.verdict == "refused" and not each.reason] == []


def _faults(
    harness: Harness, page: Page, names: Iterable[str], bound: bool, cache: pytest.Cache
) -> dict[str, str]:
    """The cases that are wrong, or no longer right, and how."""
    folders = cases()
    outcomes: dict[str, Outcome] = {name: harness.run(folders[name], bound=bound) for name in sorted(names)}
    right = set(page.right_lists[bound].read_text(encoding="utf-8").split())
    faults = {
        name: f"{outcome.verdict}, {outcome.detail}"
        for name, outcome in outcomes.items()
        if outcome.verdict not in (("right",) if name in right else SOUND)
    }
    cache.set(_place(page, bound), list(faults))
    return faults


def _place(page: Page, bound: bool) -> str:
    return f"conformance/{page.stem}/{'bound' if bound else 'fed'}"
