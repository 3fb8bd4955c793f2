"""Measure how often `onnxport bench --against` is right on a busy machine.

    python -m benchmarks.bench_gate [KEY...] [--repetitions 20] [--threads 1] [--burners N] [--beside]

The installed command measures a baseline of real models. Then fresh processes compare, in turns, the unchanged files
and the same networks with 15 % more work (benching/slower.py) with it, at --max-slowdown 1.10. Meanwhile, and during
the baseline, other programs start and stop at random (benching/burning.py). Targets: no alarm for unchanged files in
20 repetitions, and an alarm for slower ones in 20 of 20. `--beside` compares with the earlier model itself instead.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.benching.burning import busy
from benchmarks.benching.slower import slower
from fixtures import models
from onnxport.bench.inputs import Inputs
from onnxport.bench.params import BenchParams
from onnxport.formats.input_shapes import GivenShape
from onnxport.formats.model import Model

_MODELS = ("mobilenetv2/mobilenetv2.onnx", "mtcnn/onet.onnx", "rapidocr-v4/ch_PP-OCRv4_rec_infer.onnx")
_SHARE = 0.15
_LIMIT = "1.10"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=list(_MODELS), metavar="KEY")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--burners", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", action="store_true", help="against the earlier model, not its figures")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        _run(given, Path(place))


def _run(given: argparse.Namespace, folder: Path) -> None:
    names = {key: f"{key.replace('/', '_').removesuffix('.onnx')}.onnx" for key in given.models}
    more = {}
    for side in ("now", "same", "slower"):
        (folder / side).mkdir()
    for key, name in names.items():
        shutil.copy(models.path(key), folder / "same" / name)
        inputs = Inputs(BenchParams(shape=_shapes(key)), [Model.load(models.path(key))])
        more[name] = slower(
            folder / "same" / name, folder / "slower" / name, _SHARE, inputs.feeding(None), given.threads
        )
        print(f"{name}: {more[name]:.1%} more to do", file=sys.stderr)
    standings = {(name, side): Counter[str]() for name in names.values() for side in ("same", "slower")}
    began = time.monotonic()
    with busy(given.burners, given.seed):
        _put(folder, "same", names.values())
        for key, name in names.items():
            _bench(folder, given, key, name, "--report", f"{name}.json")
        for turn in range(given.repetitions):
            for side in ("same", "slower"):
                _put(folder, side, names.values())
                for key, name in names.items():
                    against = f"../same/{name}" if given.beside else f"{name}.json"
                    options = ("--against", against, "--max-slowdown", _LIMIT)
                    standing = _bench(folder, given, key, name, *options)
                    standings[name, side][standing] += 1
            print(f"{turn + 1}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    _show(given, standings, more)


def _put(folder: Path, side: str, names: object) -> None:
    for name in names:  # type: ignore[attr-defined]
        shutil.copy(folder / side / name, folder / "now" / name)


def _shapes(key: str) -> dict[str, GivenShape]:
    return {name: tuple(dims) for name, dims in models.shapes(key).items()}


def _bench(folder: Path, given: argparse.Namespace, key: str, name: str, *options: str) -> str:
    """The standing of the first row; it agrees with the exit code."""
    shapes = [f"--shape={each}={','.join(map(str, dims))}" for each, dims in models.shapes(key).items()]
    command = ["onnxport", "bench", name, "--threads", str(given.threads), *shapes, *options, "--json"]
    done = subprocess.run(command, cwd=folder / "now", capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    against = json.loads(done.stdout)["rows"][0]["against"]
    standing = against["standing"] if against else "none"
    assert (done.returncode == 1) == (standing == "slower"), done.stdout
    print(f"  {name}: {against['said'] if against else 'the baseline'}", file=sys.stderr)
    return standing


def _show(
    given: argparse.Namespace, standings: dict[tuple[str, str], Counter[str]], more: dict[str, float]
) -> None:
    table = Table(title=f"{given.threads} threads, {given.burners} programs beside, limit {_LIMIT}")
    for heading in ("model", "more to do", "kept", "unclear", "slower"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for (name, side), found in standings.items():
        share = f"{more[name]:.1%}" if side == "slower" else "none"
        table.add_row(name, share, *(str(found[each]) for each in ("kept", "unclear", "slower")))
    console = Console()
    console.print(table)
    total = given.repetitions * len(more)
    alarms = sum(found["slower"] for (_, side), found in standings.items() if side == "same")
    caught = sum(found["slower"] for (_, side), found in standings.items() if side == "slower")
    console.print(f"{alarms} alarms of {total} unchanged, {caught} caught of {total} slower")


if __name__ == "__main__":
    main()
