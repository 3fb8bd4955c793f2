"""Many conversions in one process through the Python API: what memory, descriptors, children and files are left.

    python -m tests.soak.load --count 500
    MALLOC_ARENA_MAX=1 python -m tests.soak.load --count 80 --threads 8 --targets ort

Each conversion is proven. The models and targets take turns, and the same of both must give the same bytes.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import itertools
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import onnxport
from tests.cli.sandbox import DIGITS

TARGETS = ("ort", "tflite", "coreml")
# The first conversions load libraries, and fill their pools.
WARM = 9


@dataclass(frozen=True)
class Held:
    """What the process holds.

    Attributes:
        memory: bytes, without mapped files.
        scratch: files in the folder for temporary files.
    """

    memory: int
    descriptors: int
    children: int
    threads: int
    scratch: int


@dataclass(frozen=True)
class Load:
    """The outcome: what was held after the warm-up and at the end, and the digests of each kind of artefact."""

    before: Held
    after: Held
    digests: dict[str, set[str]]
    seconds: float

    @property
    def growth(self) -> float:
        return self.after.memory / self.before.memory - 1

    def __str__(self) -> str:
        rows = [
            f"{name}: {getattr(self.before, name):,} -> {getattr(self.after, name):,}"
            for name in ("memory", "descriptors", "children", "threads", "scratch")
        ]
        kinds = ", ".join(f"{kind}: {len(found)}" for kind, found in sorted(self.digests.items()))
        return "\n".join(
            [*rows, f"memory grew by {self.growth:+.1%} in {self.seconds:.0f} s", f"digests {kinds}"]
        )


def held(scratch: Path) -> Held:
    """Read it of this process, after a collection."""
    gc.collect()
    resident, of_files = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    children = [
        name
        for name in Path(f"/proc/{os.getpid()}/task").iterdir()
        for name in (name / "children").read_text().split()
    ]
    return Held(
        (resident - of_files) * os.sysconf("SC_PAGE_SIZE"),
        len(os.listdir("/proc/self/fd")),
        len(children),
        threading.active_count(),
        sum(1 for _ in scratch.rglob("*")),
    )


def convert(number: int, folder: Path, targets: Sequence[str] = TARGETS) -> tuple[str, str]:
    """Convert once, in a folder of its own that is removed; return the kind and the artefact's digest."""
    target = targets[number % len(targets)]
    place = folder / str(number)
    place.mkdir()
    try:
        path = onnxport.convert_model(DIGITS, target, place / f"digits{SUFFIX[target]}", samples=1).path
        return target, digest(path)
    finally:
        shutil.rmtree(place)


SUFFIX = {"ort": ".ort", "tflite": ".tflite", "coreml": ".mlpackage"}


def digest(path: Path) -> str:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest()


def run(
    count: int,
    threads: int,
    folder: Path,
    scratch: Path,
    *,
    shown: int = 0,
    targets: Sequence[str] = TARGETS,
) -> Load:
    """Convert `count` times after a warm-up, `threads` at once."""
    digests: dict[str, set[str]] = {}
    numbers = itertools.count()

    def several(number: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            for kind, found in pool.map(
                lambda each: convert(each, folder, targets), itertools.islice(numbers, number)
            ):
                digests.setdefault(kind, set()).add(found)

    several(max(WARM, 2 * threads))
    before, begun = held(scratch), time.monotonic()
    for done in range(0, count, shown or count):
        several(min(shown or count, count - done))
        if shown:
            print(done + shown, held(scratch), flush=True)
    return Load(before, held(scratch), digests, time.monotonic() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, scratch = Path(name, "work"), Path(name, "tmp")
        folder.mkdir()
        scratch.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
        found = run(asked.count, asked.threads, folder, scratch, shown=20, targets=asked.targets)
    print(found)
    leaked = found.after.descriptors > found.before.descriptors or found.after.children or found.growth > 0.05
    sys.exit(1 if leaked or any(len(each) > 1 for each in found.digests.values()) else 0)


if __name__ == "__main__":
    main()
