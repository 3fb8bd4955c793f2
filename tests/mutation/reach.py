"""Which test reaches which function: measured once on an instrumented copy of the checkout."""

from __future__ import annotations

import ast
import json
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

from tests.mutation.mutants import functions, mutable_files

_FUNCTIONS = "functions.json"
_CALL = "_reach"


def instrument(copy: Path, folder: Path) -> None:
    """Put a call of `hook.reach` at the start of each function of the copy; write their names to the folder."""
    names: list[str] = []
    for path in mutable_files():
        tree = ast.parse((copy / path).read_text(encoding="utf-8"))
        found = list(functions(tree))
        for name, function in found:
            _insert(function.body, f"{_CALL}({len(names)})")
            names.append(f"{path}:{name}")
        if found:
            _insert(tree.body, f"from onnxport.core._reach import reach as {_CALL}")
            (copy / path).write_text(ast.unparse(tree), encoding="utf-8")
    shutil.copy(Path(__file__).with_name("hook.py"), copy / "onnxport/core/_reach.py")
    (folder / _FUNCTIONS).write_text(json.dumps(names), encoding="utf-8")


def _insert(body: list[ast.stmt], line: str) -> None:
    """Insert a statement after a docstring and imports of `__future__`."""
    place = 0
    if ast.get_docstring(ast.Module(body, [])) is not None:
        place = 1
    while (
        place < len(body)
        and isinstance(first := body[place], ast.ImportFrom)
        and first.module == "__future__"
    ):
        place += 1
    body[place:place] = ast.parse(line).body


class Reach:
    """What the run in `folder` measured.

    Attributes:
        seconds: of each test that passed.

    Args:
        tests: those that exist now.
        budget: seconds of tests for one mutant.
    """

    def __init__(self, folder: Path, tests: Collection[str], budget: float) -> None:
        self._budget = budget
        names = json.loads((folder / _FUNCTIONS).read_text(encoding="utf-8"))
        self.seconds: dict[str, float] = {}
        # By "path:function", path and folder: tests, and test files whose shared fixtures reach it.
        self._tests: dict[str, set[str]] = defaultdict(set)
        for file in folder.glob("worker-*.json"):
            known, seconds = json.loads(file.read_text(encoding="utf-8"))
            self.seconds |= {name: seconds[name] for name in seconds.keys() & tests}
            reached = file.with_suffix(".reached")
            for line in reached.read_text(encoding="utf-8").splitlines() if reached.exists() else ():
                test, function = map(int, line.split())
                if test:
                    path = names[function].partition(":")[0]
                    for place in (names[function], path, path.rpartition("/")[0]):
                        self._tests[place].add(known[test])

    def tests(self, path: str, function: str) -> list[str]:
        """Return the tests to run for a mutant: the shortest, test files together.

        Lines of a module, and functions that run while it is imported, name no test: there the whole file counts, or
        its folder if it has no functions.
        """
        places = (f"{path}:{function}", path, path.rpartition("/")[0])
        chosen = next((found for place in places if (found := self._shortest(self._tests[place]))), [])
        order = {name.partition("::")[0]: number for number, name in reversed(list(enumerate(chosen)))}
        return sorted(chosen, key=lambda name: order[name.partition("::")[0]])

    def _shortest(self, names: Iterable[str]) -> list[str]:
        direct = self.seconds.keys() & names
        beside = {name for name in self.seconds if name.partition("::")[0] in names} - direct
        chosen: list[str] = []
        left = self._budget
        for group in (direct, beside):
            for name in sorted(group, key=lambda name: (self.seconds[name], name)):
                left -= self.seconds[name]
                if chosen and left < 0:
                    return chosen
                chosen.append(name)
        return chosen


def is_measured(folder: Path) -> bool:
    return any(folder.glob("worker-*.json"))
