"""Seeded mutation campaigns: a valid file is changed, a command reads it, and its end is judged.

`python -m tests.hostile.campaign onnx tflite --count 1000 --first 0 --keep FOLDER` runs one by hand.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from onnxport.core import errors
from tests.hostile.forks import Forks, Run, forks
from tests.hostile.mutation import mutate
from tests.hostile.subjects import RARE, SUBJECTS, Subject

ALLOWED = (
    errors.PROVEN,
    errors.NOT_EQUIVALENT,
    errors.USAGE,
    errors.CANNOT_CONVERT,
    errors.BAD_INPUT,
    errors.MISSING_DEPENDENCY,
    errors.MACHINE_FAILED,
)
MEMORY = 1_000_000_000  # bytes that a run on a file of kilobytes may take
_SLOW = 10.0  # seconds
_END = re.compile(r"(?:^|\n)error: [^\n]+(?:\n[^\n]+)*\nexit (\d+)\n\Z")


@dataclass(frozen=True)
class Trial:
    """One changed file and how its reading ended; `fault` is empty for an allowed end."""

    seed: int
    target: str
    command: tuple[str, ...]
    content: bytes
    run: Run
    fault: str


class Campaign:
    """Trials on one format; `folder` has the valid files between two of them."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.subject = name, SUBJECTS[name]
        self.folder = folder / "work"
        self.folder.mkdir(parents=True)
        self.subject.make(self.folder)
        self.targets = {
            file.relative_to(self.folder).as_posix(): syntax
            for pattern, syntax in self.subject.targets.items()
            for file in sorted(self.folder.glob(pattern))
        }
        assert self.targets, f"{name} made none of {list(self.subject.targets)}"
        self._listing = self._list()

    def warm(self, running: Forks) -> None:
        """Read a valid file in the server; fail where a valid file is refused: its changes would show nothing."""
        shared = (":imports", *self.subject.imports) if self.subject.imports else None
        running.warm(self.folder, *(shared or self._command(next(iter(self.targets)), 0)))
        for target in self.targets:
            run = running.run(self.folder, *self._command(target, 0), timeout=120.0)
            assert run.code == 0, f"{self.name}, {target}: {run.stderr}"

    def trial(self, seed: int, running: Forks, *, rarity: int = RARE) -> Trial:
        """Change a file by `seed`, read it, one in `rarity` by a command that runs models, and restore it."""
        chance = random.Random(f"{self.name} {seed}")
        target = chance.choice(list(self.targets))
        file = self.folder / target
        valid = file.read_bytes()
        content = mutate(valid, self.targets[target], chance)
        rare = len(self.subject.commands) > 1 and seed % rarity == 1 % rarity
        number = chance.randrange(1, len(self.subject.commands)) if rare else 0
        command = self._command(target, number)
        file.unlink()  # it may be a hard link, as in a cache
        file.write_bytes(content)
        try:
            run = running.run(self.folder, *command, timeout=self.subject.seconds, shared=not rare)
            if not rare and find_fault(run, self.subject):  # runs before it may have caused that
                run = running.run(self.folder, *command, timeout=self.subject.seconds)
        finally:
            file.unlink(missing_ok=True)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(valid)
        fault = find_fault(run, self.subject) or self._litter(command)
        return Trial(seed, target, command, content, run, fault)

    def _command(self, target: str, number: int) -> tuple[str, ...]:
        package = target.partition("/")[0]
        return tuple(
            word.replace("{}", target).replace("{package}", package) for word in self.subject.commands[number]
        )

    def _list(self) -> set[str]:
        return {file.relative_to(self.folder).as_posix() for file in self.folder.rglob("*")}

    def _litter(self, command: tuple[str, ...]) -> str:
        """Return the fault of files that a run left or removed; remove its output."""
        for word in command:
            if word.startswith("out."):
                for made in self.folder.glob("out.*"):
                    made.unlink()
        now = self._list()
        if self.name == "cache":  # drops what is damaged
            return ""
        changed = sorted(now ^ self._listing)
        self._listing = now
        return f"files changed: {', '.join(changed[:3])}" if changed else ""


def find_fault(run: Run, subject: Subject) -> str:
    """Return why a run ended in no allowed way; empty if it did not."""
    if run.seconds is None:  # the child's time limit ends it with a sentence
        return "" if subject.in_child else "ran past its time"
    if run.code < 0:
        return "" if subject.in_child else f"ended by signal {-run.code}"
    if run.code not in ALLOWED:
        lines = run.stderr.strip().splitlines()
        return f"exit {run.code}: {' '.join(lines[-2:])[:300]}"
    if subject.in_child:  # what libraries say there is not shown
        _, ours, said = f"\n{run.stderr}".rpartition("\nerror: ")
        run = replace(run, stdout="", stderr=f"{ours}{said}".lstrip("\n") if ours else "")
    if "Traceback" in run.stdout + run.stderr:
        return "a traceback"
    if run.peak > MEMORY and not subject.in_child:
        return f"took {run.peak / 1e9:.1f} GB"
    if run.code and not _END.search(run.stderr):
        return f"no sentence: {run.stderr[-200:]!r}"
    if "out of memory" in run.stderr and not subject.in_child:
        return f"out of memory: {run.stderr[-200:]!r}"
    unprintable = [line for line in (run.stdout + run.stderr).split("\n") if not line.isprintable()]
    return f"unprintable: {unprintable[0][:100]!r}" if unprintable else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="+", choices=(*SUBJECTS, "all"))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the files that end in no allowed way")
    parser.add_argument(
        "--rarity",
        type=int,
        default=RARE,
        help="one file in N is read by a command that runs models; 1 for all",
    )
    asked = parser.parse_args()
    names = list(SUBJECTS) if "all" in asked.formats else asked.formats
    with tempfile.TemporaryDirectory() as folder, forks(Path(folder, "forks")) as running:
        for name in names:
            campaign = Campaign(name, Path(folder, name))
            campaign.warm(running)
            _report(campaign, running, asked)


def _report(campaign: Campaign, running: Forks, asked: argparse.Namespace) -> None:
    ends: Counter[int] = Counter()
    faults: Counter[str] = Counter()
    seconds, slowest, peak = 0.0, 0.0, 0
    for seed in range(asked.first, asked.first + asked.count):
        trial = campaign.trial(seed, running, rarity=asked.rarity)
        ends[trial.run.code] += 1
        seconds += trial.run.seconds or campaign.subject.seconds
        slowest, peak = max(slowest, trial.run.seconds or 0.0), max(peak, trial.run.peak)
        if (trial.run.seconds or 0.0) > _SLOW:
            print(
                f"  {campaign.name} {seed} {' '.join(trial.command)}: {trial.run.seconds:.1f} s", flush=True
            )
        if trial.fault:
            faults[re.sub(r"\d+", "N", trial.fault)[:160]] += 1
            print(f"  {campaign.name} {seed} {' '.join(trial.command)}: {trial.fault}", flush=True)
            if asked.keep:
                place = asked.keep / campaign.name
                place.mkdir(parents=True, exist_ok=True)
                (place / f"{seed}-{Path(trial.target).name}").write_bytes(trial.content)
                (place / f"{seed}.txt").write_text(f"{trial.command}\n{trial.fault}\n{trial.run.stderr}")
    codes = ", ".join(f"{code}: {number}" for code, number in sorted(ends.items()))
    print(
        f"{campaign.name}: {asked.count} files, {sum(faults.values())} faults of {len(faults)} kinds; exit codes "
        f"{codes}; {seconds:.0f} s, the slowest {slowest:.2f} s, the largest {peak / 1e6:.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    main()
