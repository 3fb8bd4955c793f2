"""The peak memory of conversions with their proof, beside the size of the model.

    python -m benchmarks.conversion_memory                    # every ONNX model of fixtures/models.toml to TFLite
    python -m benchmarks.conversion_memory --to coreml --models yunet/face_detection_yunet_2023mar.onnx

Each conversion is the installed command in a fresh process; its peak is that of the whole tree of processes
(proportional set size). The target is three times the model's size and 200 MB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.commands import with_bytecode
from benchmarks.memory import onnxport
from fixtures import models

_SUFFIXES = {"tflite": ".tflite", "coreml": ".mlpackage", "ort": ".ort"}
_TIMES, _BESIDE = 3, 200e6


def peak(model: Path, target: str) -> int | None:
    """Return the most bytes that a conversion and its proof held, None where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out").with_suffix(_SUFFIXES[target])
        try:
            command = ("convert", str(model), "--to", target, "-o", str(out))
            return onnxport(*command, environment=with_bytecode()).peak
        except SystemExit as failure:
            print(failure, file=sys.stderr)
            return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the models, and end with 1 if one needs more than the target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [key for key in models.keys() if not key.endswith(".tflite")]  # noqa: SIM118 - a module
    parser.add_argument("--to", choices=list(_SUFFIXES), default="tflite")
    parser.add_argument("--models", nargs="+", choices=known, metavar="KEY", default=known)
    given = parser.parse_args(arguments)
    table = Table("model", "MB", "peak MB", "of the target")
    shares = []
    for key in given.models:
        model = models.path(key)
        size, most = model.stat().st_size, peak(model, given.to)
        if most is None:
            table.add_row(key, f"{size / 1e6:.1f}", "fails", "")
            continue
        shares.append(most / (_TIMES * size + _BESIDE))
        table.add_row(key, f"{size / 1e6:.1f}", f"{most / 1e6:.0f}", f"{shares[-1]:.2f}")
        print(key, f"{most / 1e6:.0f} MB, {shares[-1]:.2f}", file=sys.stderr)
    Console(width=120).print(table)
    within = sum(share <= 1 for share in shares)
    print(f"{within} of {len(shares)} within {_TIMES} times the model's size and {_BESIDE / 1e6:.0f} MB")
    return 0 if within == len(shares) else 1


if __name__ == "__main__":
    sys.exit(main())
