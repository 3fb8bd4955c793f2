"""From one MIL program to the saved package: our passes and writer against `coremltools.convert` with its default ones.

    python -m benchmarks.coreml_convert [--write] [--rounds N] [MODEL]...

Both get a program that our lowering made of the same model, each one of its own since coremltools changes what it is
given; imports, reading, preparing and lowering are left out. Operators are counted without constants. `--write` renews
docs/benchmarks-coreml.md.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures import models
from onnxport.converters.coreml import library  # noqa: F401 - before coremltools
from onnxport.converters.coreml.lower import Lowered, lower_model
from onnxport.converters.coreml.package.writer import Metadata, write_package
from onnxport.converters.coreml.passes.pipeline import operations_of, optimize
from onnxport.converters.coreml.registry import REGISTRY
from onnxport.converters.params import CoremlParams
from onnxport.formats.manifest import MAIN
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare

PAGE = Path(__file__).parents[1] / "docs" / "internals" / "benchmarks-coreml.md"
KEYS = (*filter(lambda key: key.startswith("light/"), models.keys()), "mobilenetv2/mobilenetv2.onnx")
_HEAD = """# From a MIL program to a package

`python -m benchmarks.coreml_convert --write` wrote this page: the same program, float32, saved by us and by
`coremltools.convert` with its default passes, in one run and one after the other; imports, reading and lowering are
left out. Operators are counted without constants.

| model | ours, s | coremltools, s | ratio | operators | coremltools' | MB | coremltools' |
|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """One model; seconds are the least of all rounds."""

    key: str
    seconds: tuple[float, float]
    operators: tuple[int, int]
    sizes: tuple[int, int]

    @property
    def ratio(self) -> float:
        return self.seconds[0] / self.seconds[1]

    def __str__(self) -> str:
        ours, theirs = self.sizes
        return (
            f"| {self.key} | {self.seconds[0]:.2f} | {self.seconds[1]:.2f} | {self.ratio:.2f} | {self.operators[0]} "
            f"| {self.operators[1]} | {ours / 1e6:.3f} | {theirs / 1e6:.3f} |"
        )


def measure(key: str, rounds: int) -> Row:
    """Both writers on the model `key`."""
    makers: tuple[Callable[[Lowered, Path], Any], ...] = (_ours, _coremltools)
    seconds, operators, sizes = [9e9, 9e9], [0, 0], [0, 0]
    for _ in range(rounds):
        for place, make in enumerate(makers):
            lowered = _lowered(key)
            with tempfile.TemporaryDirectory() as folder:
                package = Path(folder, "model.mlpackage")
                start = time.perf_counter()
                program = make(lowered, package)
                seconds[place] = min(seconds[place], time.perf_counter() - start)
                operators[place] = sum(1 for each in operations_of(program) if each.op_type != "const")
                sizes[place] = sum(file.stat().st_size for file in package.rglob("*") if file.is_file())
                shutil.rmtree(package)
    return Row(key, (seconds[0], seconds[1]), (operators[0], operators[1]), (sizes[0], sizes[1]))


def _lowered(key: str) -> Lowered:
    prepared = prepare(Model.load(models.path(key)), shapes={}, native=lambda: REGISTRY.ops).model
    return lower_model(prepared, CoremlParams(precision="fp32"))


def _ours(lowered: Lowered, package: Path) -> Any:
    done = optimize(lowered)
    write_package({MAIN: done}, package, Metadata())
    return done.program


def _coremltools(lowered: Lowered, package: Path) -> Any:
    import coremltools as ct

    shapes = {
        key: ct.Shape(
            [ct.RangeDim(*bound, default=size) for bound, size in zip(each.bounds, each.default, strict=True)]
        )
        for key, each in lowered.sizes.items()
        if each.bounds
    }
    model = ct.convert(
        lowered.program,
        convert_to="mlprogram",
        minimum_deployment_target=ct.target.iOS17,
        compute_precision=ct.precision.FLOAT32,
        inputs=[ct.TensorType(key, shape=shape) for key, shape in shapes.items()] or None,
    )
    model.save(str(package))
    return model._mil_program


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("models", nargs="*", default=KEYS)
    given = parser.parse_args(arguments)
    rows = []
    for key in given.models:
        rows.append(measure(key, given.rounds))
        sys.stdout.write(f"{rows[-1]}\n")
        sys.stdout.flush()
    median = f"Median ratio: {statistics.median(row.ratio for row in rows):.2f}."
    sys.stdout.write(f"{median}\n")
    if given.write:
        PAGE.write_text(_HEAD + "\n".join(map(str, rows)) + f"\n\n{median}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
