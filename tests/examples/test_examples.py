"""Every example is what its README says: fetched and run by the installed command, each in a fresh process.

The default run makes a part of each, on fewer samples; `-m exhaustive` all of them, two at a time, with the page of
the run, and holds the second run of the vision example to a twentieth of the first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ONNXPORT = Path(sys.executable).with_name("onnxport")
# What the default run makes of each: targets, and what ${SAMPLES} is where the file reads it.
QUICK = {
    "vision": ("android-int8 onnx-int8", 16),
    "ocr": ("android ios-cls", 4),
    "audio": ("android-small ios18 server", 4),
    "tabular": ("onnx server android ios", 4),
    "pytorch": ("android", 2),
}

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900)]


def fetched(name: str, folder: Path) -> Path:
    """A copy of the example's folder as its README has the user fill it."""
    folder = folder / name
    folder.mkdir()
    for file in (EXAMPLES / name).iterdir():
        if file.suffix in (".py", ".yaml"):
            shutil.copy(file, folder)
    script = [folder / "train.py"] if name == "tabular" else [EXAMPLES / "fetch.py", name, folder]
    done = subprocess.run([sys.executable, *script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def ran(folder: Path, *options: str, **environment: str) -> dict[str, Any]:
    """The JSON of `onnxport run` in a fresh process, in the example's folder, which has to pass."""
    command = [ONNXPORT, "run", "pipeline.yaml", "--json", *options]
    kept = {name: value for name, value in os.environ.items() if name != "SAMPLES"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept | {"ONNXPORT_CACHE": str(folder / ".onnxport")} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def statuses(document: dict[str, Any]) -> dict[str, str]:
    """Node to what became of it."""
    return {node["name"]: node["status"] for node in document["nodes"]}


def check_delivered(document: dict[str, Any], folder: Path) -> None:
    assert document["cells"]
    for cell in document["cells"]:
        assert cell["verdict"] in ("proven", "measured"), cell
        assert all(limit["kept"] for limit in cell["limits"]), cell
        assert (folder / cell["path"]).exists(), cell


@pytest.mark.parametrize("name", QUICK)
def test_a_part_of_the_example_is_proven_and_kept(name: str, tmp_path: Path) -> None:
    folder = fetched(name, tmp_path)
    targets, samples = QUICK[name]

    def run() -> dict[str, Any]:
        chosen = [f"--target={target}" for target in targets.split()]
        return ran(folder, *chosen, SAMPLES=str(samples))

    for status in ("made", "cached"):
        document = run()
        check_delivered(document, folder)
        assert set(statuses(document).values()) == {status}
    if name == "tabular":  # the cheapest; vision's is below
        change(folder, "server: {to: ort}", "server: {to: ort, level: basic}")
        others = dict.fromkeys(statuses(document), "cached")
        assert statuses(run()) == others | {"tumours/server": "made"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", QUICK)
def test_the_whole_example_is_proven_by_two_processes(name: str, tmp_path: Path) -> None:
    folder = fetched(name, tmp_path)
    check_delivered(ran(folder, "--jobs=2", "--report=reports"), folder)
    assert (folder / "reports").is_dir()
    frozen = ran(folder, "--frozen")
    check_delivered(frozen, folder)
    assert set(statuses(frozen).values()) == {"cached"}


@pytest.mark.exhaustive
def test_the_second_run_of_vision_starts_nothing_and_an_option_redoes_its_target(tmp_path: Path) -> None:
    folder = fetched("vision", tmp_path)
    started = time.monotonic()
    first = ran(folder)
    between = time.monotonic()
    second = ran(folder)
    ended = time.monotonic()
    assert set(statuses(first).values()) == {"made"}
    assert set(statuses(second).values()) == {"cached"}
    print(f"first {between - started:.1f} s, second {ended - between:.2f} s")
    assert ended - between <= 0.05 * (between - started)
    change(folder, "ios-int8: {to: coreml,", "ios-int8: {to: coreml, minimum_target: iOS18,")
    third = statuses(ran(folder))
    assert third == dict.fromkeys(statuses(first), "cached") | {"mobilenetv2/ios-int8": "made"}


def change(folder: Path, before: str, after: str) -> None:
    pipeline = folder / "pipeline.yaml"
    text = pipeline.read_text(encoding="utf-8")
    assert before in text
    pipeline.write_text(text.replace(before, after), encoding="utf-8")
