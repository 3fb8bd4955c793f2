"""Measure what `make test` finds: `python -m tests.mutation --count 300 --seed 1`.

Runs the fast tests once to learn which test reaches which line. Then puts one mutant after another into a copy of the
checkout and runs the tests that reach its line, the shortest first. Prints every survivor and the share killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import coverage

from tests.mutation.contexts import SECONDS, TEST
from tests.mutation.mutants import ROOT, Mutant, draw_mutants

_COVERAGE = """
[run]
parallel = true
patch = subprocess
source_pkgs = onnxport
data_file = {folder}/data
context = ${{{test}-}}
"""
_BUDGET = 240.0  # seconds of tests a mutant gets; of more, the shortest
_PATIENCE = 4.0  # times as long: a mutant that hangs is found


class Reach:
    """Which tests reach which lines, and how long each takes."""

    def __init__(self, data: coverage.CoverageData, seconds: dict[str, float], root: Path) -> None:
        self._data, self._seconds, self._root = data, seconds, root

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach the mutant's line, else its file: lines that run at import name no test."""
        by_line = self._data.contexts_by_lineno(str(self._root / mutant.path))
        reaching = set(by_line.get(mutant.line, ())) & self._seconds.keys()
        reaching = reaching or ({name for names in by_line.values() for name in names} & self._seconds.keys())
        return self._shortest(reaching)

    def _shortest(self, names: Iterable[str]) -> list[str]:
        chosen, spent = [], 0.0
        for name in sorted(names, key=lambda name: (self._seconds[name], name)):
            spent += self._seconds[name]
            if chosen and spent > _BUDGET:
                break
            chosen.append(name)
        return chosen

    def limit(self, names: Iterable[str]) -> float:
        """Return the seconds after which these tests count as hanging."""
        return 120 + _PATIENCE * sum(self._seconds[name] for name in names)


def main() -> int:
    options = _options()
    mutants = draw_mutants(options.count, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        copies = [_copied(Path(folder) / f"copy{number}") for number in range(options.jobs)]
        reach = _reach(copies[0], Path(folder), options.jobs)
        free: SimpleQueue[Path] = SimpleQueue()
        for copy in copies:
            free.put(copy)

        def examine(mutant: Mutant) -> str:
            copy = free.get()
            try:
                return _outcome(mutant, copy, reach)
            finally:
                free.put(copy)

        killed = 0
        with ThreadPoolExecutor(options.jobs) as pool:
            for mutant, outcome in zip(mutants, pool.map(examine, mutants), strict=True):
                killed += outcome == "killed"
                if outcome != "killed":
                    print(f"{outcome}  {mutant.path}:{mutant.line}  {mutant.change}", flush=True)
    print(f"{killed} of {len(mutants)} killed, {killed / len(mutants):.1%}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _copied(place: Path) -> Path:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name)
    return place


def _reach(copy: Path, folder: Path, jobs: int) -> Reach:
    """Run the fast tests under coverage."""
    config = folder / "coveragerc"
    config.write_text(_COVERAGE.format(folder=folder, test=TEST), encoding="utf-8")
    seconds = folder / "seconds"
    seconds.mkdir()
    environment = {SECONDS: str(seconds), TEST: ""}
    command = ("coverage", "run", f"--rcfile={config}", "-m", "pytest", "--fast", "-q", "-n", str(jobs))
    _run(copy, (*command, "--dist", "loadfile", "-p", "tests.mutation.contexts"), environment, None)
    measured = coverage.Coverage(config_file=str(config), data_file=str(folder / "data"))
    measured.combine()
    times = {
        name: value
        for file in seconds.iterdir()
        for name, value in json.loads(file.read_text(encoding="utf-8")).items()
    }
    return Reach(measured.get_data(), times, copy)


def _outcome(mutant: Mutant, copy: Path, reach: Reach) -> str:
    names = reach.tests(mutant)
    if not names:
        return "not reached"
    place = copy / mutant.path
    before = place.read_text(encoding="utf-8")
    place.write_text(mutant.source, encoding="utf-8")
    try:
        return "survived" if _run(copy, ("pytest", "-x", "-q", *names), {}, reach.limit(names)) else "killed"
    finally:
        place.write_text(before, encoding="utf-8")


def _run(copy: Path, command: tuple[str, ...], environment: dict[str, str], limit: float | None) -> bool:
    """Run a module of this Python on the copy; return whether it ended well and in time."""
    known = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    try:
        done = subprocess.run(
            (sys.executable, "-m", *command), cwd=copy, env=known, capture_output=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
