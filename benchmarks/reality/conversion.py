"""Convert one model as a stranger would: with no option first, then with the options that our own message names.

Each command is the installed one in a fresh process, with a limit of time; its seconds and its peak of memory are
measured. An artefact of exit 0 is checked by `benchmarks.reality.check`, which knows nothing of our judge.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peak import Peak
from benchmarks.reality.check import DIFFERENT, NOT_CHECKED, Check
from benchmarks.reality.samples import write_samples
from fixtures import reality

LIMIT = 300.0  # seconds a command
BUDGET = "sqnr=15"  # of int8: nodes that lose more stay float, and a note names them
SEED = 20_261  # of the check and of the calibration samples; the product's own generator never sees it

RIGHT, WRONG, UNPROVEN, REFUSED, CRASHED, SLOW = "right", "wrong", "unproven", "refused", "crashed", "slow"
_OUTCOME_OF_CODE = {1: UNPROVEN, 2: REFUSED, 3: REFUSED, 4: REFUSED, 5: REFUSED}
_SUFFIX = {"ort": ".ort", "tflite": ".tflite", "coreml": ".mlpackage"}
_SIZE = r"\?|\d+(\.\.\d*)?(\|\d+)*"
_KEEP = "--dynamic-quantization keep"
_SHAPE = re.compile(r"--shape ('[^']+'|\"[^\"]+\"|\S+)")


@dataclass(frozen=True)
class Command:
    """A command's end.

    Attributes:
        options: those beside the model, the target and the output.
        code: its exit code; None after the limit of time.
        said: its JSON report, or its error.
        message: why it failed, in its own words; empty after exit 0.
        seconds, megabytes: wall time, peak of its process and all below it.
    """

    options: tuple[str, ...]
    code: int | None
    said: Mapping[str, Any]
    message: str
    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Row:
    """A model, a target and a precision, and the result: a line of the results file.

    Attributes:
        outcome: right, wrong, unproven (exit 1), refused (2 to 5), crashed (6, 70, a signal) or slow.
        options: of the last command.
        tries: one or two commands.
        code: exit code of the last; None after the limit of time.
        message: why it failed, in its own words.
        first: the message of the first command, if there was a second.
        size: of the artefact, in bytes.
        check: what the independent check found, of a rejected artefact too.
        notes: those of the command's report: what int8 left in float, why a file is larger than its source.
    """

    key: str
    to: str
    precision: str
    outcome: str
    options: tuple[str, ...]
    tries: int
    code: int | None
    message: str
    first: str
    seconds: float
    megabytes: float
    size: int = 0
    check: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def convert(key: str, to: str, precision: str) -> Row:
    """Fetch a model, convert it, and check the result."""
    model = reality.path(key)
    known = reality.entry(key).shapes
    with tempfile.TemporaryDirectory(prefix="reality-") as temp:
        target = Path(temp, "model" + _SUFFIX[to])
        options = _precision_options(model, precision, reality.entry(key), Path(temp))
        arguments = [str(model), "--to", to, "-o", str(target), "--keep-rejected"]
        ran = run(arguments, options)
        tries, first = 1, ""
        if ran.code and (advised := way_out(ran.message, known)):
            tries, first = 2, ran.message
            ran = run(arguments, [*options, *advised])
        outcome = outcome_of(ran.code)
        check: Check | None = None
        made = target if outcome == RIGHT else target.with_suffix(f".rejected{target.suffix}")
        if made.exists():
            check = checked(model, made, fed_sizes(ran.said), precision, Path(temp, "others"))
        if outcome == RIGHT and check and check.verdict == DIFFERENT:
            outcome = WRONG
        return Row(
            key=key,
            to=to,
            precision=precision,
            outcome=outcome,
            options=tuple(_without(temp, option) for option in ran.options),
            tries=tries,
            code=ran.code,
            message=_without(temp, ran.message, str(model)),
            first=_without(temp, first, str(model)),
            seconds=round(ran.seconds, 1),
            megabytes=round(ran.megabytes, 1),
            size=_size(target) if target.exists() else 0,
            check=vars(check) if check else {},
            notes=tuple(_without(temp, note, str(model)) for note in _notes(ran.said)),
        )


def run(arguments: Sequence[str], options: Sequence[str], limit: float = LIMIT) -> Command:
    """Run `onnxport convert` in a process group of its own, which is killed at the limit."""
    command = [str(Path(sys.executable).with_name("onnxport")), "convert", *arguments, "--json", *options]
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with (
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            ) as process,
            Peak(process.pid) as peak,
        ):
            try:
                code: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = None
        seconds = time.perf_counter() - start
        out.seek(0)
        err.seek(0)
        said = _parsed(out.read())
        message = "" if code == 0 else _message(code, said, err.read().decode(errors="replace"), limit)
    return Command(tuple(options), code, said, message, seconds, peak.megabytes)


def outcome_of(code: int | None) -> str:
    """Name the end of a command; exit 0 counts as right until it is checked."""
    if code is None:
        return SLOW
    return RIGHT if code == 0 else _OUTCOME_OF_CODE.get(code, CRASHED)


def way_out(message: str, known: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the options that a message names: `--shape`, each input's first, with numbers for its words, or _KEEP.

    A word (`batch`, `SIZE`) becomes the size in `known`, else one that a stranger would try.
    """
    if f"convert with {_KEEP}" in message:
        return _KEEP.split()
    advised: dict[str, list[str]] = {}
    for quoted in _SHAPE.findall(message):
        name, equals, dims = quoted.strip("'\"").rpartition("=")
        if equals and "..." not in dims:
            advised.setdefault(name, dims.rstrip(",.;:)'\"").split(","))
    known = {
        name: each for name, each in known.items() if name in advised and len(each) == len(advised[name])
    }
    words = {
        dim: size for name, sizes in known.items() for dim, size in zip(advised[name], sizes, strict=True)
    }

    def size(name: str, axis: int, dim: str) -> str:
        if re.fullmatch(_SIZE, dim):
            return dim
        if name in known:
            return str(known[name][axis])
        return str(words.get(dim, 1 if axis == 0 else 224 if len(advised[name]) == 4 else 16))

    return [
        word
        for name, dims in advised.items()
        for word in ("--shape", f"{name}={','.join(size(name, *dim) for dim in enumerate(dims))}")
    ]


def fed_sizes(said: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of the first inputs that the command's report names: sizes that the model accepts."""
    artifacts = said.get("artifacts") or [{}]
    fed = (artifacts[0].get("report") or {}).get("fed") or [{}]
    return {name: tuple(shape) for name, shape in fed[0].get("shapes", {}).items()}


def checked(
    model: Path,
    artefact: Path,
    sizes: Mapping[str, Sequence[int]],
    precision: str,
    samples: Path | None = None,
) -> Check:
    """Check in a child: an artefact that crashes its runtime is different, and does not end the benchmark.

    Args:
        samples: a folder of inputs to check on; random ones where there is none.
    """
    if artefact.suffix == ".mlpackage":
        return Check(NOT_CHECKED, "Core ML runs on macOS only")
    command = [sys.executable, "-m", "benchmarks.reality.check", str(model), str(artefact)]
    command += ["--seed", str(SEED), "--precision", precision, "--sizes", json.dumps(sizes)]
    command += ["--samples", str(samples)] if samples and samples.exists() else []
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return Check(NOT_CHECKED, f"not ready after {LIMIT:.0f} s")
    if ended.returncode:
        return Check(DIFFERENT, f"its runtime crashed: {ended.stderr.strip()[-300:]}")
    return Check(**json.loads(ended.stdout.splitlines()[-1]))


def _precision_options(model: Path, precision: str, entry: reality.Entry, temp: Path) -> list[str]:
    """Return the options of a precision; int8 gets samples in `temp`/samples, and others in `temp`/others."""
    if precision == "fp32":
        return []
    if precision == "fp16":
        return ["--precision", "fp16"]
    folder = temp / "samples"
    try:
        write_samples(model, entry, SEED, folder, temp / "others")
    except ValueError:  # it takes texts, or nothing random: a stranger has no samples either
        return ["--precision", "int8"]
    return ["--precision", "int8", "--calib", str(folder), "--budget", BUDGET]


def _parsed(output: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(output)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _notes(said: Mapping[str, Any]) -> list[str]:
    """Return the notes of a command's report."""
    return [note for artifact in said.get("artifacts", ()) for note in artifact.get("notes", ())]


def _message(code: int | None, said: Mapping[str, Any], errors: str, limit: float) -> str:
    if code is None:
        return f"not ready after {limit:.0f} s"
    if error := said.get("error"):
        return str(error.get("message", error))
    for artifact in said.get("artifacts", []):
        report = artifact.get("report") or {}
        if report.get("verdict") not in (None, "proven"):
            return f"{report['verdict']}: {report.get('reason', '')}"
    return errors.strip()[-600:] or f"exit {code} without a word"


def _without(temp: str, text: str, model: str = "") -> str:
    """Return the text without this machine's folders."""
    text = text.replace(model, Path(model).name) if model else text
    return text.replace(f"{temp}/", "")


def _size(target: Path) -> int:
    files = [target] if target.is_file() else [each for each in target.rglob("*") if each.is_file()]
    return sum(file.stat().st_size for file in files)


def shown(row: Row) -> str:
    """Describe a row in one line."""
    why = row.check.get("told", "") if row.outcome in (RIGHT, WRONG) else row.message.split("\n")[0]
    options = f"  [{shlex.join(row.options)}]" if row.options else ""
    return f"{row.outcome:8} {row.seconds:6.1f} s {row.megabytes:7.0f} MB  {row.key} {row.to}{options}  {why[:150]}"
