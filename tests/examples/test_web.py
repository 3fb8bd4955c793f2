"""The example of a web page in a headless Chromium: ONNX Runtime Web answers as ONNX Runtime did."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.reports import chromium

PREPARE = Path(__file__).parents[2] / "examples" / "web" / "prepare.py"
# A WebGPU device in software, which Chromium brings.
_WEBGPU = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
    "--enable-unsafe-webgpu",
    "--enable-features=Vulkan",
    "--use-webgpu-adapter=swiftshader",
    "--ignore-gpu-blocklist",
)
_SECONDS = 120

pytestmark = [pytest.mark.real, pytest.mark.slow]


def prepared(folder: Path, *model: Path) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("onnxruntime-web is fetched with npm, which is not installed")
    command = [sys.executable, PREPARE, folder / "site", *model]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("web"))


def said(url: str, profile: Path) -> str:
    """Return the first line of the page's console, in real time: WebGPU does not follow a virtual clock."""
    command = [chromium.find(), *_WEBGPU, f"--user-data-dir={profile}", url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as browser:
        timer = threading.Timer(_SECONDS, browser.kill)
        timer.start()
        try:
            assert browser.stderr is not None
            lines = (re.search(r'CONSOLE[^"]*"(.*)", source', line) for line in browser.stderr)
            return next((found[1] for found in lines if found), "nothing")
        finally:
            timer.cancel()
            browser.kill()


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
def test_the_page_computes_the_same(page: Path, provider: str, tmp_path: Path) -> None:
    with chromium.serving(page) as site:
        line = said(f"{site.address}/index.html?provider={provider}", tmp_path)
    assert line.startswith(f"same: {provider}, "), line


def test_a_convolution_that_webgpu_computes_wrongly_is_right_in_the_page(tmp_path: Path) -> None:
    """WebGPU's Conv is wrong for six channels, so the page has to load what `--fit webgpu` wrote."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>\n'
        "g (float[1,6,6,6] x) => (float[1,8,6,6] y) { y = Conv <pads = [1,1,1,1]> (x, w) }"
    )
    weights = np.random.default_rng(0).normal(size=(8, 6, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    with chromium.serving(prepared(tmp_path, tmp_path / "m.onnx")) as site:
        line = said(f"{site.address}/index.html?provider=webgpu", tmp_path / "profile")
    assert line.startswith("same: webgpu, "), line


def test_a_wrong_answer_shows(page: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    shutil.copytree(page, broken)
    case = (broken / "case.json").read_text(encoding="utf-8")
    head, _, answers = case.partition('"answers"')
    (broken / "case.json").write_text(
        head + '"answers"' + re.sub(r"-?\d+\.\d+", "1.5", answers), encoding="utf-8"
    )
    with chromium.serving(broken) as site:
        assert said(f"{site.address}/index.html", tmp_path / "profile").startswith("different: wasm, ")
