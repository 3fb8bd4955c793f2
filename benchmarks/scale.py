"""Measure the peak memory of converting a large model to TFLite, and of proving the result.

    python -m benchmarks.scale [GB ...] [--precision fp16] [--folder DIR]

For each size, a seeded chain of MatMul and Gemm with external weights is written, converted by the installed command
without a proof, and then validated, each in a fresh process whose children count. The targets are 4 times the model's
size in memory at 1 GB and 3 times at 3 GB, for the conversion and for the validation alone. The third line is the
conversion with its proof in one command, as users run it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

from benchmarks.memory import Cost, onnxport

WIDTH = 4096  # features of every layer: 67 MB of weights
_SEED = 0


def write_chain(path: Path, size: float, *, width: int = WIDTH, opset: int = 21) -> Path:
    """Writes an ONNX model with `size` bytes of weights beside it, one layer in memory at a time."""
    data = path.with_suffix(".data")
    layers = max(round(size / (4 * width * width)), 1)
    random = np.random.default_rng(_SEED)
    nodes, weights, value = [], [], "x"
    with data.open("wb") as file:
        for number in range(layers):
            name, result = f"w{number}", f"h{number}"
            weights.append(_external(name, width, data.name, file.tell()))
            array = random.standard_normal((width, width), np.float32)
            file.write((array * np.float32(1.4 / width**0.5)).data)
            nodes += _layer(value, name, result, number)
            value = result
    nodes.append(helper.make_node("Identity", [value], ["y"]))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", width])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return path


def _external(name: str, width: int, location: str, offset: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[width, width])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", 4 * width * width)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _layer(value: str, weights: str, result: str, number: int) -> list[onnx.NodeProto]:
    """Every second layer is a Gemm with its weights transposed."""
    product = f"{result}/product"
    if number % 2:
        first = helper.make_node("Gemm", [value, weights], [product], f"gemm{number}", transB=1)
    else:
        first = helper.make_node("MatMul", [value, weights], [product], f"matmul{number}")
    return [first, helper.make_node("Relu", [product], [result], f"relu{number}")]


@dataclass(frozen=True)
class Row:
    """One command on one model."""

    size: int
    command: str
    cost: Cost

    def cells(self) -> tuple[str, ...]:
        peak = self.cost.peak
        return (
            f"{self.size / 1e9:.2f}",
            self.command,
            f"{self.cost.seconds:.1f}",
            f"{peak / 1e9:.2f}",
            f"{peak / self.size:.2f}",
        )


def rows(size: float, folder: Path, options: list[str]) -> list[Row]:
    """Converts and validates one model; the peaks of each."""
    source, artefact = write_chain(folder / "chain.onnx", size), folder / "chain.tflite"
    actual = source.with_suffix(".data").stat().st_size
    convert = ["convert", str(source), "--to", "tflite", "-o", str(artefact), *options]
    return [
        Row(actual, "convert --no-validate", onnxport(*convert, "--no-validate")),
        Row(actual, "validate", onnxport("validate", str(source), str(artefact))),
        Row(actual, "convert", onnxport(*convert)),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", type=float, default=[1.0, 3.0], metavar="GB")
    parser.add_argument("--precision", help="as for onnxport convert")
    parser.add_argument(
        "--folder", type=Path, help="where the files lie for the time; ten times the size is needed"
    )
    chosen: Any = parser.parse_args(arguments)
    shown = Table("GB", "command", "s", "peak GB", "times the size")
    for size in chosen.sizes:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            options = ["--precision", chosen.precision] if chosen.precision else []
            for row in rows(size * 1e9, Path(folder), options):
                shown.add_row(*row.cells())
    Console().print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
