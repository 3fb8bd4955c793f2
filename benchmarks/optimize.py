"""Measure the peak memory of optimizing a large model, including the proof.

    python -m benchmarks.optimize [GB ...] [--folder DIR]

For each size, a seeded chain of MatMul and Gemm at opset 11 with external weights goes through `onnxport optimize
--opset latest --simplify` in a fresh process, whose children count (benchmarks.memory: proportional set size, mapped
files included). The target is 1.3 times the model's size at 3 GB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.memory import onnxport
from benchmarks.scale import Row, write_chain

_OPSET = 11


def optimized(size: float, folder: Path) -> Row:
    """Writes a model and optimizes it."""
    source = write_chain(folder / "chain.onnx", size, opset=_OPSET)
    asked = ["optimize", str(source), "--opset", "latest", "--simplify", "-o", str(folder / "optimized.onnx")]
    return Row(source.with_suffix(".data").stat().st_size, "optimize", onnxport(*asked))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", type=float, default=[1.0, 3.0], metavar="GB")
    parser.add_argument(
        "--folder", type=Path, help="where the files lie for the time; twice the size is needed"
    )
    chosen: Any = parser.parse_args(arguments)
    shown = Table("GB", "command", "s", "peak GB", "times the size")
    for size in chosen.sizes:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            shown.add_row(*optimized(size * 1e9, Path(folder)).cells())
    Console().print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
