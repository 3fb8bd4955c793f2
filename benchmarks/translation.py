"""Which quantized files of real models are proven node for node: the table in docs/internals/translation.md.

    python -m benchmarks.translation --to tflite -o results.jsonl [MODEL...]
    python -m benchmarks.translation --table results.jsonl...

Each file is made by the installed command in a process of its own, calibrated on pictures of low frequencies (or random
tokens) drawn by a seed, and judged by `onnxport validate` on the same samples in another.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fixtures import models

# Name -> key in fixtures/models.toml, and the range that pictures are scaled to.
MODELS: dict[str, tuple[str, tuple[float, float]]] = {
    "PP-OCR cls": ("rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx", (-1, 1)),
    "PP-OCR det": ("rapidocr-v4/ch_PP-OCRv4_det_infer.onnx", (-2, 2)),
    "PP-OCR rec": ("rapidocr-v4/ch_PP-OCRv4_rec_infer.onnx", (-1, 1)),
    "YuNet": ("yunet/face_detection_yunet_2023mar.onnx", (0, 255)),
    "MobileNetV2": ("mobilenetv2/mobilenetv2.onnx", (-2, 2)),
    "EfficientNet-Lite0": ("efficientnet_lite0/efficientnet_lite0.onnx", (-2, 2)),
    "nudenet": ("nudenet/320n.onnx", (0, 1)),
    "u2netp": ("u2netp/u2netp.onnx", (-2, 2)),
    "MiniLM": ("minilm/minilm.onnx", (0, 0)),
}
PRECISIONS = ("int8", "int16x8", "dynamic", "int8-weights", "int4-weights", "fp16")
_CALIBRATED = frozenset(PRECISIONS[:2])
_SUFFIXES = {"onnx": ".onnx", "tflite": ".tflite", "coreml": ".mlpackage"}
_SAMPLES, _SECONDS = 6, 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.translation")
    parser.add_argument("models", nargs="*", default=[*MODELS])
    parser.add_argument("--to", choices=_SUFFIXES, default="tflite")
    parser.add_argument("--precision", action="append", choices=PRECISIONS)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--table", nargs="+", type=Path, help="no runs: the table of such files")
    options = parser.parse_args()
    if options.table:
        print(table([json.loads(line) for each in options.table for line in each.read_text().splitlines()]))
        return
    for name in options.models:
        for precision in options.precision or PRECISIONS:
            row = measure(name, precision, options.to)
            print(row, flush=True)
            if options.output:
                with options.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


def measure(name: str, precision: str, target: str) -> dict[str, Any]:
    """Make and judge one file; the row has the verdict on the translation and what is said of it."""
    key, ends = MODELS[name]
    source, shapes = models.path(key), models.shapes(key)
    row = {"model": name, "precision": precision, "to": target}
    with tempfile.TemporaryDirectory() as root:
        samples = write_samples(Path(root, "samples"), shapes, ends)
        made, why = _make(source, precision, target, Path(root), samples, shapes)
        if made is None:
            return row | {"verdict": "not made", "text": why}
        started = time.perf_counter()
        fixed = [f"--shape={each}={','.join(map(str, shape))}" for each, shape in shapes.items()]
        run = _command("validate", source, made, "--inputs", samples, *fixed, "--json")
        seconds = round(time.perf_counter() - started, 1)
        try:
            report = json.loads(run.stdout)["artifacts"][0]["report"]
        except (json.JSONDecodeError, KeyError, IndexError):
            return row | {"verdict": "refused", "text": run.stderr[-300:]}
        found = {each["question"]: each for each in report["judgements"]}.get("translation")
        notes = [each for each in report["notes"] if "node" in each]
        verdict = "not asked" if found is None else found["verdict"]
        text = notes[0] if notes else "" if found is None else found["reason"]
        return row | {"verdict": verdict, "text": text, "seconds": seconds}


def _make(
    source: Path, precision: str, target: str, root: Path, samples: Path, shapes: Mapping[str, Sequence[int]]
) -> tuple[Path | None, str]:
    """Return the file, or None and why there is none. Core ML's are made of the quantized ONNX file."""
    calibration = ["--calib", samples] if precision in _CALIBRATED else []
    fixed = [f"--shape={each}={','.join(map(str, shape))}" for each, shape in shapes.items()]
    output = root / f"made{_SUFFIXES[target]}"
    if target == "tflite":
        word = "int8-dynamic" if precision == "dynamic" else precision
        arguments = ["convert", source, "--to", target, "--precision", word, *calibration, *fixed]
        run = _command(*arguments, "--no-validate", "-o", output)
        return (None, run.stderr[-300:]) if run.returncode else (output, "")
    if target == "coreml" and precision == "fp16":
        run = _command(
            "convert", source, "--to", target, "--precision", precision, *fixed, "--no-validate", "-o", output
        )
        return (None, run.stderr[-300:]) if run.returncode else (output, "")
    middle = root / "made.onnx"
    run = _command("quantize", source, f"--{precision}", *calibration, "--no-validate", "-o", middle)
    if target == "coreml" and not run.returncode:
        newer = ["--minimum-target", "iOS18"] if precision == "int4-weights" else []
        run = _command("convert", middle, "--to", target, *fixed, *newer, "--no-validate", "-o", output)
    return (None, run.stderr[-300:]) if run.returncode else (output, "")


def write_samples(folder: Path, shapes: Mapping[str, Sequence[int]], ends: tuple[float, float]) -> Path:
    """Write `_SAMPLES` sets of inputs: sums of noise along rows and columns, token ids, masks of ones."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    for number in range(_SAMPLES):
        feeds = {}
        for name, shape in shapes.items():
            if name == "input_ids":
                feeds[name] = draw.integers(1000, 20000, shape)
            elif name in ("attention_mask", "token_type_ids"):
                feeds[name] = np.full(shape, int(name == "attention_mask"), np.int64)
            else:
                feeds[name] = _picture(draw, shape, ends)
        np.savez(folder / f"{number}.npz", **feeds)
    return folder


def _picture(draw: np.random.Generator, shape: Sequence[int], ends: tuple[float, float]) -> Any:
    values = draw.standard_normal(shape)
    for axis in range(2, len(shape)):
        values = np.cumsum(values, axis=axis)
    values = (values - values.mean()) / values.std() + 0.1 * draw.standard_normal(shape)
    low, high = ends
    return np.clip((low + high) / 2 + (high - low) / 4 * values, low, high).astype(np.float32)


def _command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The installed command in a process of its own."""
    command = [sys.executable, "-m", "onnxport", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the verdicts as Markdown: a row for each model and target, a column for each precision."""
    return "\n".join(_lines({(each["model"], each["to"], each["precision"]): each for each in rows}))


def _lines(rows: dict[tuple[str, str, str], dict[str, Any]]) -> Iterator[str]:
    yield f"| model | file | {' | '.join(PRECISIONS)} |"
    yield f"|---|---|{'---|' * len(PRECISIONS)}"
    for name in MODELS:
        for target in _SUFFIXES:
            found = [rows.get((name, target, each), {}).get("verdict", "") for each in PRECISIONS]
            if any(found):
                yield f"| {name} | `{_SUFFIXES[target]}` | {' | '.join(found)} |"


if __name__ == "__main__":
    main()
