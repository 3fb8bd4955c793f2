"""Real models on ONNX Runtime's WebGPU provider with `--fit webgpu`: placed without its CPU, and proven.

    python -m benchmarks.webgpu_fit                    # models without a row, then docs/internals/webgpu-models.md
    python -m benchmarks.webgpu_fit --stale --minutes 4    # and those whose files another version of the code made
    python -m benchmarks.webgpu_fit --again mtcnn/pnet.onnx

The models of fixtures/models.toml up to 16 MB, at the sizes that stand there. Each becomes an `.ort` file by `optimize
--shape` and `convert --fit webgpu`, which `validate` proves on the provider against the original, with one set of
inputs. The rows lie beside the page.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import kept_rows
from benchmarks.artefacts import generated
from benchmarks.commands import Run, run_command
from benchmarks.convert import Subject
from fixtures import models
from onnxport.runtimes.registry import find

DOCUMENT = Path(__file__).parents[1] / "docs" / "internals" / "webgpu-models.md"
ROWS = DOCUMENT.with_suffix(".jsonl")
_LARGEST_FILE = 16e6
_SHARE = "30 of 34"
_INTEGERS = ("smart-turn/smart-turn-v3.2-cpu.onnx",)  # the target counts the models that compute in floats

_HEAD = """\
# Real models with `--fit webgpu`

Written by `python -m benchmarks.webgpu_fit`; no row is made by hand. The models of
`fixtures/models.toml` up to 16 MB, at the sizes that stand there, as `.ort` files of `onnxport
convert --to ort --fit webgpu` on SwiftShader, the smallest first. **whole**: ONNX Runtime's WebGPU
provider runs each node, with its CPU switched off. **proven**: its answers are those of ONNX
Runtime on the original, by `validate` with one set of inputs. Seconds are those of a device in
software, loading included; the models without a row were not measured, since it takes minutes for
each. The target counts the models that compute in floats, which are all but smart-turn.

A row holds for a later version of the code that makes the same files, byte by byte.
"""


@dataclass(frozen=True)
class Row:
    """What became of a model.

    Attributes:
        said: empty if it is proven there, else what was said.
        whole: whether the provider takes all of its nodes.
        seconds: of the proof.
        files, rules: see `kept_rows.Row`.
    """

    key: str
    whole: bool
    said: str = ""
    seconds: float = 0.0
    files: str = ""
    rules: str = ""


def subjects() -> list[str]:
    """Return the keys of the ONNX models up to 16 MB, the smallest first."""
    keys = [key for key in models.keys() if not key.endswith(".tflite")]  # noqa: SIM118
    sizes = {key: models.path(key).stat().st_size for key in keys}
    return sorted((key for key in keys if sizes[key] <= _LARGEST_FILE), key=sizes.__getitem__)


def convert(subject: Subject, folder: Path) -> tuple[Path, Run]:
    """Make the `.ort` file of a model for WebGPU."""
    fixed, made = folder / "fixed.onnx", folder / "m.ort"
    run = _run("optimize", subject.path, *_sized(subject), "--no-validate", "-o", fixed)
    if run.made:
        run = _run("convert", fixed, "--to", "ort", "--fit", "webgpu", "--no-validate", "-o", made)
    return made, run


def files_of(subject: Subject) -> str:
    """Return the digest of the file that a conversion gives now; empty if it fails."""
    with tempfile.TemporaryDirectory(prefix="webgpu-models-") as temp:
        made, _ = convert(subject, Path(temp))
        return kept_rows.digest([made]) if made.exists() else ""


def measure(subject: Subject) -> Row:
    """Convert a model for WebGPU, and prove it there."""
    with tempfile.TemporaryDirectory(prefix="webgpu-models-") as temp:
        made, run = convert(subject, Path(temp))
        if run.made:
            inputs = Path(temp, "inputs")
            inputs.mkdir()
            np.savez(inputs / "0.npz", **generated(subject.path, subject.shapes)[0])
            on_gpu = ("--candidate-runtime", "runtime=ort-webgpu", "--inputs", inputs)
            run = _run("validate", subject.path, made, *_sized(subject), *on_gpu)
        refused = run.said.startswith(("exit 3", "exit 4"))
        files = kept_rows.digest([made]) if made.exists() else ""
        return Row(subject.key, not refused, run.said.replace(temp, "")[:160], round(run.seconds, 1), files)


def _sized(subject: Subject) -> list[str]:
    shapes = [f"{name}={','.join(map(str, shape))}" for name, shape in subject.told.items()]
    return [word for shape in shapes for word in ("--shape", shape)]


def _run(*words: str | Path) -> Run:
    return run_command([sys.executable, "-m", "onnxport", *map(os.fspath, words)])


def page(rows: Sequence[Row]) -> str:
    """Return the page in Markdown."""
    return "\n".join([_HEAD, *_summary(rows), "", *_table(rows)]) + "\n"


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    yield "| | models | target |"
    yield "|---|---|---|"
    yield f"| whole | {sum(row.whole for row in rows)} of {len(rows)} | |"
    yield f"| proven | {sum(not row.said for row in rows)} of {len(rows)} | |"
    floats = [row for row in rows if row.key not in _INTEGERS]
    yield f"| of them float | {sum(not row.said for row in floats)} of {len(floats)} | {_SHARE} |"
    yield f"| rows that hold for one version of the code | {kept_rows.of_one_kind(rows)} | all |"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| model | whole | proven | seconds |"
    yield "|---|---|---|---|"
    for row in rows:
        proven = f"**no**: {row.said.replace('|', '/')}" if row.said else "yes"
        yield f"| {row.key} | {'yes' if row.whole else '**no**'} | {proven} | {row.seconds:.0f} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing and write the page; 2 where there is no device."""
    given = kept_rows.parse("webgpu_fit", arguments)
    kind = find("ort-webgpu")
    assert kind is not None
    if lacking := ", ".join(kind.lacking) or kind.ask_probe():
        print(f"error: needs {lacking}: docs/guide/gpu.md", file=sys.stderr)
        return 2
    kept_rows.fill(
        DOCUMENT,
        kept_rows.read(ROWS, Row),
        subjects(),
        given,
        kept_rows.rules(),
        lambda key: measure(Subject.of(key)),
        lambda key: files_of(Subject.of(key)),
        page,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
