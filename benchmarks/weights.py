"""Weight-only and dynamic quantization of a text encoder beside ONNX Runtime's own tools.

    python -m benchmarks.weights            # the table, in Markdown
    python -m benchmarks.weights dynamic    # only rows whose name has this in it

MiniLM with its published float weights; a quarter of the sentences is for the figures, the others are what GPTQ sees.
Every row is made by a process of its own, whose CPU time with imports is `made in`. SQNR is of the words' vectors
against the float model's; `speed` is the float model's CPU time over the row's, one thread, in one run.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from fixtures import minilm, models

Array = np.ndarray[Any, np.dtype[Any]]
_BATCH, _EVERY = 4, 4
_REPEATS = 3

_NBITS = """
import sys, onnx
from onnxruntime.quantization import QuantFormat, matmul_nbits_quantizer as q
source, target = sys.argv[1:]
made = q.MatMulNBitsQuantizer(onnx.load(source), algo_config=q.{config})
made.process()
made.model.save_model_to_file(target, False)
"""
_DYNAMIC = """
import sys
from onnxruntime.quantization import quantize_dynamic
quantize_dynamic(*sys.argv[1:], {options})
"""


def _ours(*options: str) -> list[str]:
    return ["-m", "onnxport", "quantize", "{source}", *options, "--no-validate", "-o", "{target}"]


def _theirs(script: str, **how: str) -> list[str]:
    return ["-c", script.format(**how), "{source}", "{target}"]


_PLAIN = "DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric={}, bits={}, accuracy_level=4)"
TOOLS: Mapping[str, Sequence[str]] = {
    "dynamic, onnxruntime": _theirs(_DYNAMIC, options=""),
    "dynamic, onnxruntime per channel": _theirs(_DYNAMIC, options="per_channel=True"),
    "dynamic, onnxport": _ours("--dynamic"),
    "int8 per row, onnxport": _ours("--int8-weights"),
    "int8 blocks of 32, onnxruntime": _theirs(_NBITS, config=_PLAIN.format(False, 8)),
    "int8 blocks of 32, onnxport": _ours("--int8-weights", "--weights-format", "nbits"),
    "int4 symmetric, onnxruntime": _theirs(_NBITS, config=_PLAIN.format(True, 4)),
    "int4, onnxruntime": _theirs(_NBITS, config=_PLAIN.format(False, 4)),
    "int4 HQQ, onnxruntime": _theirs(_NBITS, config="HQQWeightOnlyQuantConfig(block_size=32, bits=4)"),
    "int4, onnxport": _ours("--int4-weights"),
    "int4 HQQ, onnxport": _ours("--int4-weights", "--weights-method", "hqq"),
    "int4 GPTQ, onnxport": _ours("--int4-weights", "--calib", "{samples}"),
    "int4 GPTQ MatMulNBits, onnxport": _ours(
        "--int4-weights", "--calib", "{samples}", "--weights-format", "nbits"
    ),
}


@dataclass(frozen=True)
class Row:
    """A tool's result for the text encoder.

    Attributes:
        size: bytes of the file; ONNX Runtime's tool for blocks leaves the tables, half of the model, in float.
        sqnr: dB.
        speed: times the float model's.
        cpu: seconds of the process that made it.
    """

    name: str
    size: int
    sqnr: float
    speed: float
    cpu: float


def rows(folder: Path, wanted: str = "") -> list[Row]:
    """All tools whose names have `wanted` in them; files are left in `folder`."""
    source, samples = models.path(minilm.KEY), folder / "samples"
    samples.mkdir()
    texts = minilm.sentences()
    batches = [minilm.feeds(texts[start : start + _BATCH]) for start in range(0, len(texts), _BATCH)]
    for number, feeds in enumerate(batches):
        if number % _EVERY != _EVERY - 1:
            np.savez(samples / f"{number}.npz", **feeds)
    unseen = batches[_EVERY - 1 :: _EVERY]
    own = _session(source)
    answers = [own.run(None, feeds)[0] for feeds in unseen]
    return [
        _row(name, TOOLS[name], {"source": source, "samples": samples}, folder, unseen, answers)
        for name in TOOLS
        if wanted in name
    ]


def _row(
    name: str,
    command: Sequence[str],
    paths: Mapping[str, Path],
    folder: Path,
    unseen: Sequence[Mapping[str, Array]],
    answers: Sequence[Array],
) -> Row:
    target = folder / f"{name}.onnx"
    named = {**paths, "target": target}
    line = [sys.executable, *command]
    for key, path in named.items():
        line = [part.replace(f"{{{key}}}", str(path)) for part in line]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(line, check=True, capture_output=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    made = _session(target)
    signal = noise = 0.0
    for feeds, wanted in zip(unseen, answers, strict=True):
        words = feeds["attention_mask"].astype(bool)
        error = wanted[words] - made.run(None, dict(feeds))[0][words]
        signal += float(np.square(wanted[words], dtype=np.float64).sum())
        noise += float(np.square(error, dtype=np.float64).sum())
    speed = _seconds(_session(paths["source"]), unseen) / _seconds(made, unseen)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Row(name, target.stat().st_size, 10 * float(np.log10(signal / noise)), speed, cpu)


def _session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _seconds(session: Any, unseen: Sequence[Mapping[str, Array]]) -> float:
    """The least CPU time of a few passes."""
    best = float("inf")
    for _ in range(_REPEATS + 1):
        started = time.process_time()
        for feeds in unseen:
            session.run(None, dict(feeds))
        best = min(best, time.process_time() - started)
    return best


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as folder:
        print("| | MB | SQNR dB | speed | made in, CPU s |\n|---|---|---|---|---|")
        for row in rows(Path(folder), wanted):
            print(
                f"| {row.name} | {row.size / 1e6:.1f} | {row.sqnr:.1f} | {row.speed:.2f}x | {row.cpu:.1f} |"
            )


if __name__ == "__main__":
    main()
