"""Real models on ONNX Runtime's WebGPU provider with `--fit webgpu`: placed without its CPU, and proven.

    python -m benchmarks.webgpu_fit                    # models without a row, then docs/internals/webgpu-models.md
    python -m benchmarks.webgpu_fit --stale --minutes 4    # and those measured before the last change to the rules
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
from dataclasses import dataclass, replace
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
_RULES = Path(__file__).parents[1] / "onnxport" / "converters"
_LARGEST_FILE = 16e6
_SHARE = "30 of 34"

_HEAD = """\
# Real models with `--fit webgpu`

Written by `python -m benchmarks.webgpu_fit`; no row is made by hand. The models of
`fixtures/models.toml` up to 16 MB, at the sizes that stand there, as `.ort` files of `onnxport
convert --to ort --fit webgpu` on SwiftShader, the smallest first. **whole**: ONNX Runtime's WebGPU
provider runs each node, with its CPU switched off. **proven**: its answers are those of ONNX
Runtime on the original, by `validate` with one set of inputs. Seconds are those of a device in
software, loading included.
"""


@dataclass(frozen=True)
class Row:
    """What became of a model.

    Attributes:
        said: empty if it is proven there, else what was said.
        whole: whether the provider takes all of its nodes.
        seconds: of the proof.
        rules: with which it was made, as `rules()` returns them.
    """

    key: str
    whole: bool
    said: str = ""
    seconds: float = 0.0
    rules: str = ""


def subjects() -> list[str]:
    """Return the keys of the ONNX models up to 16 MB, the smallest first."""
    keys = [key for key in models.keys() if not key.endswith(".tflite")]  # noqa: SIM118
    sizes = {key: models.path(key).stat().st_size for key in keys}
    return sorted((key for key in keys if sizes[key] <= _LARGEST_FILE), key=sizes.__getitem__)


def rules() -> str:
    """Return a digest of the rewriting rules' source."""
    return kept_rows.digest((_RULES / "webgpu_fit.py", _RULES / "webgpu_rules.py"))


def measure(subject: Subject) -> Row:
    """Convert a model for WebGPU, and prove it there."""
    with tempfile.TemporaryDirectory(prefix="webgpu-models-") as temp:
        fixed, made, inputs = Path(temp, "fixed.onnx"), Path(temp, "m.ort"), Path(temp, "inputs")
        shapes = [f"{name}={','.join(map(str, shape))}" for name, shape in subject.told.items()]
        sized = [word for shape in shapes for word in ("--shape", shape)]
        run = _run("optimize", subject.path, *sized, "--no-validate", "-o", fixed)
        if run.made:
            run = _run("convert", fixed, "--to", "ort", "--fit", "webgpu", "--no-validate", "-o", made)
        if run.made:
            inputs.mkdir()
            np.savez(inputs / "0.npz", **generated(subject.path, subject.shapes)[0])
            on_gpu = ("--candidate-runtime", "runtime=ort-webgpu", "--inputs", inputs)
            run = _run("validate", subject.path, made, *sized, *on_gpu)
        refused = run.said.startswith(("exit 3", "exit 4"))
        return Row(subject.key, not refused, run.said.replace(temp, "")[:160], round(run.seconds, 1))


def _run(*words: str | Path) -> Run:
    return run_command([sys.executable, "-m", "onnxport", *map(os.fspath, words)])


def page(rows: Sequence[Row]) -> str:
    """Return the page in Markdown."""
    return "\n".join([_HEAD, *_summary(rows), "", *_table(rows)]) + "\n"


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    yield "| | models | target |"
    yield "|---|---|---|"
    yield f"| whole | {sum(row.whole for row in rows)} of {len(rows)} | |"
    yield f"| proven | {sum(not row.said for row in rows)} of {len(rows)} | {_SHARE} |"
    yield f"| measured with the same rules | {kept_rows.of_one_kind(rows)} | all |"


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
    now = rules()
    kept_rows.fill(
        DOCUMENT,
        kept_rows.read(ROWS, Row),
        subjects(),
        given,
        now,
        lambda key: replace(measure(Subject.of(key)), rules=now),
        page,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
