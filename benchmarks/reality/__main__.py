"""Convert the models of `fixtures/reality.toml` as a stranger would, to each target, and keep a line for each.

    python -m benchmarks.reality --to ort,tflite,coreml --out reality.jsonl     # what is not in the file yet
    python -m benchmarks.reality --count 12 --seed 3                            # a draw
    python -m benchmarks.reality --again refused,crashed --key madmom           # after a change
    python -m benchmarks.reality --page --out reality.jsonl                     # only docs/internals/reality.md

The file can be continued after any interruption: the last line of a model, target and precision counts.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from benchmarks.reality.conversion import CRASHED, WRONG, Row, convert, shown
from benchmarks.reality.page import DOCUMENT, by_hand, page
from fixtures import reality
from fixtures.archives import FetchError

TARGETS = ("ort", "tflite", "coreml")
PRECISIONS = ("fp32", "fp16", "int8")

Job = tuple[str, str, str]


def read(path: Path) -> dict[Job, Row]:
    """Return the rows of a results file, the last of each job."""
    if not path.exists():
        return {}
    rows = (Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())
    return {(row.key, row.to, row.precision): row for row in rows}


def jobs(keys: Sequence[str], targets: Sequence[str], precisions: Sequence[str]) -> Iterator[Job]:
    """Yield all models for a target and precision before the next."""
    for precision in precisions:
        for to in targets:
            for key in keys:
                yield key, to, precision


def work(todo: Iterable[Job], workers: int, minutes: float, out: Path) -> list[Row]:
    """Convert, and append each row to the file as soon as it is there; start nothing after so many minutes."""
    done, end = [], time.monotonic() + 60 * minutes

    def converted(job: Job) -> Row | None:
        if time.monotonic() > end:
            return None
        try:
            return convert(*job)
        except FetchError as error:
            print(f"not fetched: {job[0]}: {error}", flush=True)
            return None

    with ThreadPoolExecutor(workers) as pool, out.open("a", encoding="utf-8") as lines:
        for row in pool.map(converted, todo):
            if row is not None:
                lines.write(json.dumps(asdict(row)) + "\n")
                lines.flush()
                print(shown(row), flush=True)
                done.append(row)
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing and write the page; 1 if something is wrong or crashed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reality")
    parser.add_argument("--count", type=int, help="how many models, drawn by --seed; all unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--key", action="append", default=[], help="only keys that contain this")
    parser.add_argument("--to", type=_words(TARGETS), default=TARGETS, metavar="A,B")
    parser.add_argument("--precision", type=_words(PRECISIONS), default=("fp32",), metavar="A,B")
    parser.add_argument("--jobs", type=int, default=1, help="commands at a time; memory and seconds suffer")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start nothing after that")
    parser.add_argument("--out", type=Path, default=Path("reality.jsonl"), metavar="FILE")
    parser.add_argument("--again", default="", metavar="A,B", help="outcomes to try again")
    parser.add_argument("--page", action="store_true", help=f"only write docs/internals/{DOCUMENT.name}")
    parser.add_argument(
        "--about", default="", metavar="TEXT", help="for the page: which commit, what is missing"
    )
    given = parser.parse_args(arguments)
    if given.page:
        written = page(list(read(given.out).values()), given.about) + by_hand(DOCUMENT)
        DOCUMENT.write_text(written, encoding="utf-8")
        return 0
    keys = reality.keys() if given.count is None else reality.draw(given.count, given.seed)
    keys = [key for key in keys if not given.key or any(part in key for part in given.key)]
    known, again = read(given.out), given.again.split(",")
    todo = [
        job
        for job in jobs(keys, given.to, given.precision)
        if job not in known or known[job].outcome in again
    ]
    rows = work(todo, given.jobs, given.minutes, given.out)
    return int(any(row.outcome in (WRONG, CRASHED) for row in rows))


def _words(known: Sequence[str]) -> type[tuple[str, ...]]:
    class Words(tuple[str, ...]):
        """Words of an option, separated by commas."""

        def __new__(cls, text: str) -> Words:
            if strange := set(text.split(",")) - set(known):
                raise ValueError(strange)
            return super().__new__(cls, text.split(","))

    return Words


if __name__ == "__main__":
    raise SystemExit(main())
