"""Measure what `make test` finds: `python -m tests.mutation --count 300 --seed 1`.

Runs the fast tests once to learn which test reaches which function. Then puts one mutant after another into a copy of
the checkout and runs the tests that reach its function, the shortest first. Prints each outcome and the share killed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.hook import FOLDER
from tests.mutation.mutants import ROOT, Mutant, draw_mutants
from tests.mutation.reach import Reach, instrument, is_measured

_PATIENCE = 4.0  # times as long: a mutant that hangs is found
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


def main() -> int:
    options = _options()
    mutants = draw_mutants(options.count, options.seed)
    if options.only:
        mutants = [each for each in mutants if _place(each) in options.only]
    with tempfile.TemporaryDirectory() as root:
        folder = (options.reach or Path(root, "reach")).absolute()
        if not is_measured(folder):
            _measure(folder, Path(root, "instrumented"), options.jobs)
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            copies.put(_copy_checkout(Path(root, f"copy{number}")))
        tests = _pytest(Path(root, "copy0"), ("--fast", "--collect-only"), {}, None)[1].splitlines()
        reach = Reach(folder, tests, options.budget)
        killers: set[str] = set()

        def examine(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                outcome = _examine(mutant, copy, reach)
            finally:
                copies.put(copy)
            print(f"{_place(mutant)}  {mutant.change}\n    {outcome}", flush=True)
            is_killed = outcome.startswith("killed")
            if is_killed and "::" in outcome:
                killers.add(outcome.removeprefix("killed by "))
            return is_killed

        with ThreadPoolExecutor(options.jobs) as pool:
            killed = sum(pool.map(examine, mutants))
        chosen = Path(root, "killers")
        chosen.write_text("\n".join(sorted(killers)), encoding="utf-8")
        text = _pytest(Path(root, "copy0"), (f"@{chosen}",), {}, None)[1] if killers else ""
        for name in _FAILED.findall(text):
            print(f"fails without a mutant, too: {name}")
    print(f"{killed} of {len(mutants)} killed, {killed / len(mutants):.1%}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--reach", type=Path, help="a folder for what the tests reach; reused if it has that")
    parser.add_argument(
        "--budget", type=float, default=90.0, help="seconds of tests for a mutant, the shortest"
    )
    parser.add_argument("--only", nargs="*", metavar="PATH:LINE", help="of the drawn mutants, those there")
    return parser.parse_args()


def _place(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line}"


def _copy_checkout(place: Path) -> Path:
    listed = subprocess.run(
        ("git", "ls-files", "-co", "--exclude-standard"), cwd=ROOT, capture_output=True, text=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


def _measure(folder: Path, copy: Path, jobs: int) -> None:
    """Run the fast tests on an instrumented copy of the checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    instrument(_copy_checkout(copy), folder)
    spread = ("--fast", "-n", str(jobs), "--dist", "loadfile", "-p", "tests.mutation.plugin")
    print(_pytest(copy, spread, {FOLDER: str(folder)}, None)[1][-4000:], flush=True)


def _examine(mutant: Mutant, copy: Path, reach: Reach) -> str:
    """Run the tests that reach the mutant; return "killed by TEST" or why it lives."""
    tests = reach.tests(mutant.path, mutant.function)
    if not tests:
        return "not reached"
    seconds = [reach.seconds[name] for name in tests]
    chosen = copy / "chosen-tests"
    chosen.write_text("\n".join(tests), encoding="utf-8")
    arguments = ("-x", f"--timeout={30 + _PATIENCE * max(seconds):.0f}", f"@{chosen}")
    place = copy / mutant.path
    original = shutil.copy2(place, copy / "original")
    place.write_text(mutant.source, encoding="utf-8")
    os.utime(
        place, (0, zlib.crc32(mutant.source.encode()))
    )  # a time that the cached bytecode of no other version has
    try:
        code, text = _pytest(copy, arguments, {}, 60 + _PATIENCE * sum(seconds))
    finally:
        shutil.move(original, place)
    if code == -signal.SIGTERM:
        return "interrupted"
    if code == 0:
        return f"survived {len(tests)} tests, {sum(seconds):.0f} s"
    found = _FAILED.search(text)
    return f"killed by {found.group(1) if found else f'exit code {code}'}"


def _pytest(
    copy: Path, arguments: tuple[str, ...], environment: dict[str, str], limit: float | None
) -> tuple[int, str]:
    """Run pytest on the copy; return its exit code, -9 if it took longer than `limit` seconds, and its last output."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", *arguments)
    output = copy / "output"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)} | environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, output.read_text(encoding="utf-8", errors="replace")


if __name__ == "__main__":
    sys.exit(main())
