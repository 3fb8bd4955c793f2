"""Real models with `--fit gpu`: taken whole, proven on LiteRT's GPU runtime, and what that costs on a CPU.

    python -m benchmarks.gpu_fit                       # models without a row, then docs/internals/gpu-models.md
    python -m benchmarks.gpu_fit --stale --minutes 4   # and those whose files another version of the code made
    python -m benchmarks.gpu_fit --again mtcnn/pnet.onnx

The float models of fixtures/models.toml at the sizes that stand there. Each is converted twice, plain and fitted, and
both files are timed in turns in one process with one thread: the ratio is the median of pairs. The fitted file is
proven on the CPU, and on the GPU runtime with one set of inputs: a device in software takes a minute for some.
The rows lie beside the page, docs/internals/gpu-models.jsonl.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from benchmarks import kept_rows
from benchmarks.artefacts import generated
from benchmarks.commands import Run, run_command
from benchmarks.convert import Subject, convert_ours, in_child
from fixtures import models
from onnxport.runtimes import vulkan

DOCUMENT = Path(__file__).parents[1] / "docs" / "internals" / "gpu-models.md"
ROWS = DOCUMENT.with_suffix(".jsonl")
_ROUNDS = {False: 40, True: 20}  # of files of more than 4 MB
_LARGE_FILE = 4e6
_SIZE, _LATENCY, _SHARE = 1.05, 1.1, 0.95

_HEAD = """\
# Real models with `--fit gpu`

Written by `python -m benchmarks.gpu_fit`; no row is made by hand. The float models of
`fixtures/models.toml`, at the sizes that stand there, on SwiftShader. **whole**: the GPU runtime
takes the fitted file without its CPU. **proven**: its answers are those of ONNX Runtime on the
original, by `validate`, on the GPU runtime with one set of inputs. The ratios are the fitted file over
the plain one: bytes, and milliseconds on a CPU with one thread, the median of 40 pairs in turns
(20 of files above 4 MB), with the interval that holds it with 95 % confidence.

A row holds for a later version of the code that makes the same files, byte by byte.
"""


@dataclass(frozen=True)
class Row:
    """What became of a model.

    Attributes:
        cpu, gpu: empty if the fitted file is proven there, else what was said.
        whole: whether the GPU runtime takes it.
        size, latency: fitted over plain.
        interval: of `latency`.
        files, rules: see `kept_rows.Row`.
    """

    key: str
    whole: bool
    cpu: str = ""
    gpu: str = ""
    size: float = math.nan
    latency: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)
    files: str = ""
    rules: str = ""


# Random weights, so no real models; and their size is what they measure.
_LARGE = ("light/vgg19", "light/zfnet512", "light/alexnet")


def float_models() -> list[str]:
    """Return the keys of the ONNX models that compute in floats."""
    keys = [key for key in models.keys() if not key.endswith(".tflite") and key not in _LARGE]  # noqa: SIM118
    return [key for key in keys if is_float(models.path(key))]


def is_float(path: Path) -> bool:
    """Return whether a model computes in floats, and stores most of its weights so."""
    graph = onnx.load(path, load_external_data=False).graph
    words = ("quantize", "integer", "qattention")
    if any(word in node.op_type.lower() for node in graph.node for word in words):
        return False
    sizes = dict.fromkeys((onnx.TensorProto.INT8, onnx.TensorProto.UINT8), 0)
    for each in graph.initializer:
        sizes[each.data_type] = sizes.get(each.data_type, 0) + math.prod(each.dims)
    return sizes[onnx.TensorProto.INT8] + sizes[onnx.TensorProto.UINT8] <= sum(sizes.values()) / 2


def convert(subject: Subject, folder: Path) -> tuple[Path, Path, Run]:
    """Make the plain file of a model and the fitted one; return what was said of the fitted one, too."""
    plain, fitted = folder / "plain.tflite", folder / "fitted.tflite"
    convert_ours(subject, plain, "--no-validate")
    return plain, fitted, convert_ours(subject, fitted, "--fit", "gpu", "--no-validate")


def files_of(subject: Subject) -> str:
    """Return the digest of the files that a conversion gives now; empty if it fails."""
    with tempfile.TemporaryDirectory(prefix="gpu-models-") as temp:
        *files, _ = convert(subject, Path(temp))
        return kept_rows.digest(files) if all(map(Path.exists, files)) else ""


def measure(subject: Subject) -> Row:
    """Convert a model twice; prove and time the fitted file."""
    with tempfile.TemporaryDirectory(prefix="gpu-models-") as temp:
        plain, fitted, run = convert(subject, Path(temp))
        if not run.made:
            return Row(subject.key, whole=False, gpu=run.said)
        cpu = _validate(subject, fitted)
        inputs = Path(temp, "inputs")
        inputs.mkdir()
        np.savez(inputs / "0.npz", **generated(subject.path, subject.shapes)[0])
        on_gpu = ("--candidate-runtime", "runtime=litert-gpu", "--inputs", os.fspath(inputs))
        gpu = _validate(subject, fitted, *on_gpu)
        row = Row(subject.key, not gpu.said.startswith(("exit 3", "exit 4")), cpu.said, gpu.said)
        if not plain.exists():
            return row
        rounds = _ROUNDS[fitted.stat().st_size > _LARGE_FILE]
        latency, said = in_child("latency", subject.path, subject.shapes, fitted, plain, rounds, 1)
        if latency is None:
            raise SystemExit(f"error: {subject.key} cannot be timed: {said}")
        ratio = latency.ratio
        size = fitted.stat().st_size / plain.stat().st_size
        return replace(
            row,
            size=size,
            latency=ratio.median,
            interval=(ratio.low, ratio.high),
            files=kept_rows.digest((plain, fitted)),
        )


def _validate(subject: Subject, artefact: Path, *options: str) -> Run:
    command = [sys.executable, "-m", "onnxport", "validate", os.fspath(subject.path), os.fspath(artefact)]
    for name, shape in subject.told.items():
        command += ["--shape", f"{name}={','.join(map(str, shape))}"]
    return run_command([*command, *options])


def page(rows: Sequence[Row]) -> str:
    """Return the page in Markdown."""
    return "\n".join([_HEAD, *_summary(rows), "", *_table(rows)]) + "\n"


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    whole = sum(row.whole for row in rows)
    proven = sum(row.whole and not row.gpu for row in rows)
    yield "| | models | target |"
    yield "|---|---|---|"
    yield f"| whole | {whole} of {len(rows)} ({whole / len(rows):.1%}) | {_SHARE:.0%} |"
    yield f"| proven on the GPU runtime | {proven} of {len(rows)} | all |"
    for title, limit, found in (
        ("file size", _SIZE, [row.size for row in rows]),
        ("CPU latency", _LATENCY, [row.latency for row in rows]),
    ):
        known = [ratio for ratio in found if not math.isnan(ratio)]
        kept = sum(ratio <= limit for ratio in known)
        yield f"| {title} at most {limit} | {kept} of {len(known)}, largest {max(known):.2f} | all |"
    yield f"| rows that hold for one version of the code | {kept_rows.of_one_kind(rows)} | all |"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| model | whole | proven on the GPU | proven on the CPU | size | latency |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        low, high = row.interval
        ratios = (
            ["", ""]
            if math.isnan(row.size)
            else [f"{row.size:.3f}", f"{row.latency:.2f} ({low:.2f} to {high:.2f})"]
        )
        proofs = [_proof(row.gpu), "" if math.isnan(row.size) else _proof(row.cpu)]
        yield f"| {' | '.join([row.key, 'yes' if row.whole else '**no**', *proofs, *ratios])} |"


def _proof(said: str) -> str:
    """Return a cell; of what was said, the part behind the names of the files, and no folders."""
    told = re.sub(r"/\S*/", "", said).rpartition(".onnx: ")[2].replace("|", "/")
    return f"**no**: {told[:120]}" if said else "yes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing and write the page; 2 where there is no device."""
    given = kept_rows.parse("gpu_fit", arguments)
    if lacking := vulkan.lacking():
        print(f"error: needs {lacking}: docs/guide/gpu.md", file=sys.stderr)
        return 2
    kept_rows.fill(
        DOCUMENT,
        kept_rows.read(ROWS, Row),
        float_models(),
        given,
        kept_rows.rules(),
        lambda key: measure(Subject.of(key)),
        lambda key: files_of(Subject.of(key)),
        page,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
