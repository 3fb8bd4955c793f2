"""ONNX's own float32 node tests through `--fit gpu`, and LiteRT's GPU runtime (see harness.py).

    python -m tests.conformance.gpu [--seconds N] [PART OF A NAME]...

All inputs but the first are bound, as weights, axes and sizes are in real models: a GPU takes fixed sizes only.
It prints what is not right, and how many are what. What it found is kept in build/: a later run, of this module or of
coverage.py, measures the rest only, and the cases whose names contain an argument. `--seconds` ends a run early.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from onnxport.converters.params import TfliteParams
from onnxport.formats.model import Model
from tests.conformance.harness import Array, cases, load_case, reference
from tests.conformance.page import Rest, read_rests, write_rests
from tests.conformance.tflite import Conformance, Prover

# What was found so far; coverage.py removes it when the page is written.
KEPT = Path(__file__).parents[2] / "build" / "conformance-gpu.txt"

# Of the largest answer. SwiftShader's sine and cosine are good to 79 dB.
ATOL = 2e-4
RTOL = 1e-3


class GpuProver(Prover):
    """The child's side: our compiler's worker, and the GPU runtime for what it made."""

    def run(self, artefact: Path, feeds: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
        """The artefact's answers to each of `feeds`, in the source's layout and dtypes."""
        from onnxport.runtimes.litert_gpu import TfliteGpuRuntime

        with TfliteGpuRuntime(artefact) as runtime:
            return [runtime.run(feed) for feed in feeds]


class GpuConformance(Conformance):
    """The TFLite route for a GPU."""

    prover = "tests.conformance.gpu:GpuProver"
    params = TfliteParams(fit=("gpu",))

    def fault(self, expected: dict[str, Array], answer: dict[str, Array]) -> str:
        faults = ((name, _difference(value, answer[name])) for name, value in expected.items())
        return next((f"{name}: {fault}" for name, fault in faults if fault), "")

    def is_disputed(self, model: Model, feeds: dict[str, Array], answer: dict[str, Array]) -> bool:
        return not self.fault(reference(model, feeds), answer)


def _difference(expected: Array, actual: Array) -> str:
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return f"{actual.dtype} {actual.shape}, expected {expected.dtype} {expected.shape}"
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    scale = np.abs(a[np.isfinite(a)]).max(initial=0)
    is_float = expected.dtype.kind == "f"
    is_right = np.allclose(b, a, RTOL, ATOL * scale, equal_nan=True) if is_float else np.array_equal(a, b)
    with np.errstate(all="ignore"):
        return "" if is_right else f"off by {np.nanmax(np.abs(a - b))}, scale {scale}"


def float_cases() -> Iterator[tuple[str, Path]]:
    """The node tests whose first input is float32."""
    for name, folder in cases().items():
        if name.startswith("node/"):
            model = load_case(folder / "model.onnx")
            if model.inputs and model.inputs[0].dtype == "float32":
                yield name, folder


def measure(*, seconds: float = math.inf, again: Sequence[str] = ()) -> dict[str, Rest]:
    """Run the cases that are not kept, or whose names contain a part of `again`; return all outcomes by case."""
    found = read_rests(KEPT) if KEPT.exists() else {}
    KEPT.parent.mkdir(exist_ok=True)
    everything = dict(float_cases())
    for name in list(found):
        if name not in everything or any(part in name for part in again):
            del found[name]
    wanted = [name for name in everything if name not in found]
    if again:
        wanted = [name for name in wanted if any(part in name for part in again)]
    end = time.monotonic() + seconds
    with GpuConformance() as conformance:
        for name in wanted:
            if time.monotonic() > end:
                break
            outcome = conformance.run(everything[name], bound=True)
            found[name] = Rest(outcome.verdict, outcome.reason)
            write_rests(KEPT, found)
            if outcome.verdict != "right":
                print(name, outcome.verdict, outcome.detail[:300].replace("\n", " "), flush=True)
    counts = Counter(each.verdict for each in found.values())
    print(dict(counts), f"{len(everything) - len(found)} left")
    return {name: found[name] for name in everything if name in found}


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("parts", nargs="*", metavar="PART")
    chosen = parser.parse_args()
    measure(seconds=chosen.seconds, again=chosen.parts)


if __name__ == "__main__":
    main()
