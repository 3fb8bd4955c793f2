"""Names of a model in every command that shows, draws or writes them: they stay text on one line, in their folder."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.formats.artifact import Artifact
from onnxport.reports.model_view.server import open_server
from tests.hostile.attacking import Target
from tests.reports import chromium

FLOAT = TensorProto.FLOAT
PAGE = "</script><img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script><!--"
NAMES = {
    "text": "\x1b[2J\x1b]0;t\x07\x9b31m\u202egpj\u2066\n::set-output name=x::y\r\n##[command]rm\u2028\x85"
    "::error::forged\n"
    f"{PAGE}\"'`$(touch pwned);|&*[a](javascript:alert(1)) {{{{7*7}}}} {{% x %}} ${{HOME}}: &a [b] # c",
    "path": "../../../pwned",
    "root": "/pwned/../../etc/passwd",
    "nul": "a\0b",
    "long": "n" * 100_000,
}


def model_of(name: str, factor: float = 1.0) -> onnx.ModelProto:
    """Return a small network of which all that has a name has this one: also a size, metadata, and a domain."""

    def weight(end: str, *shape: int) -> onnx.TensorProto:
        values = np.random.default_rng(len(end)).normal(size=shape).astype(np.float32) * factor
        return numpy_helper.from_array(values, name + end)

    nodes = [
        helper.make_node("MatMul", [f"{name}.x", f"{name}.w"], [f"{name}.a"], f"{name}/scope/product"),
        helper.make_node("Relu", [f"{name}.a"], [f"{name}.b"], f"{name}/scope/relu"),
        helper.make_node("MatMul", [f"{name}.b", f"{name}.ww"], [f"{name}.c"], f"{name}/last"),
        helper.make_node("Own", [f"{name}.c"], [f"{name}.y"], f"{name}/own", domain=name),
    ]
    ends = [helper.make_tensor_value_info(f"{name}.{end}", FLOAT, [f"{name}.N", 4]) for end in "xy"]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(name, 1)]
    graph = helper.make_graph(
        nodes, name, ends[:1], ends[1:], [weight(".w", 4, 4), weight(".ww", 4, 4)], doc_string=name
    )
    own = helper.make_function(
        name, "Own", ["i"], ["o"], [helper.make_node("Neg", ["i"], ["o"], name)], opsets[:1]
    )
    model = helper.make_model(
        graph, opset_imports=opsets, functions=[own], ir_version=10, producer_name=name, doc_string=name
    )
    helper.set_model_props(model, {name: name})
    return model


REPORTS = tuple(word for form in ("html", "md", "json") for word in ("--report", f"out.{form}"))
Command = Callable[[str], tuple[str, ...]]
SIZES: Command = lambda name: ("--shape", f"{name}.x=2,4")  # noqa: E731
COMMANDS: dict[str, Command] = {
    "inspect": lambda name: ("inspect", "bad.onnx"),
    "inspect plan": lambda name: ("inspect", "bad.onnx", "--plan", *SIZES(name)),
    "inspect runs-on": lambda name: ("inspect", "bad.onnx", "--runs-on", "ort-cpu,nnapi,coreml-ep", *REPORTS),
    "diff": lambda name: ("diff", "bad.onnx", "other.onnx", "--report", "out.html", "--report", "out.json"),
    "debug": lambda name: ("debug", "bad.onnx", "other.onnx", "-o", "repro"),
    "profile": lambda name: ("profile", "bad.onnx", "--trace", "trace.json", *REPORTS, *SIZES(name)),
    "bench": lambda name: ("bench", "bad.onnx", "--runs", "3", *REPORTS, *SIZES(name)),
    "view": lambda name: ("view", "bad.onnx", "--export", "view"),
    "extract": lambda name: ("extract", "bad.onnx", "--outputs", f"{name}.b", "-o", "out.onnx"),
    "optimize": lambda name: ("optimize", "bad.onnx", "-o", "out.onnx", *REPORTS),
    "quantize": lambda name: ("quantize", "bad.onnx", "--dynamic", "-o", "out.onnx", *REPORTS),
    "convert": lambda name: ("convert", "bad.onnx", "--to", "tflite", "-o", "out.tflite", *REPORTS),
    "convert coreml": lambda name: ("convert", "bad.onnx", "--to", "coreml", "-o", "out.mlpackage", *REPORTS),
    "convert ort": lambda name: ("convert", "bad.onnx", "--to", "ort", "-o", "out.ort", *REPORTS),
    "validate": lambda name: ("validate", "bad.onnx", "other.onnx", *REPORTS),
    "run": lambda name: ("run", "pipeline.yaml"),
}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest, target: Target) -> str:
    name = NAMES[request.param]
    onnx.save(model_of(name), target.folder / "bad.onnx")
    onnx.save(model_of(name, 1.5), target.folder / "other.onnx")
    (target.folder / "pipeline.yaml").write_text(
        "version: 1\nmodel: bad.onnx\ntargets: {server: {to: ort}}\nreports: [build/report]\n"
    )
    return name


@pytest.mark.parametrize("command", COMMANDS)
def test_names_stay_text_in_every_command(command: str, name: str, target: Target) -> None:
    target.environment["GITHUB_ACTIONS"] = "true"
    before = {*target.folder.rglob("*")}
    run = target.run(*COMMANDS[command](name), timeout=120)
    assert run.code in (0, 1, 2, 3, 4), run.stderr
    for line in (run.stdout + run.stderr).splitlines():
        assert line.isprintable()
        assert "##[" not in line
        assert not re.match(r"\s*::", line) or re.match(r"::(error|warning|notice|group|endgroup) ?", line)
        assert not re.match(r"\s*::(set-output|error::forged)", line)
    made = {*target.folder.rglob("*")} - before
    for path in made:
        assert path.name.isprintable()
        assert "pwned" not in path.name
        if path.is_file():
            _check_inert(path)


def _check_inert(path: Path) -> None:
    """Fail where a name is more than text in a report."""
    if path.suffix not in (".html", ".md", ".json", ".xml", ".sarif", ".txt", ".py"):
        return
    text = path.read_text()
    assert "\x1b" not in text, path
    assert "\u202e" not in text, path
    if path.suffix == ".html":
        assert not re.search(r"<(img|script)\b", text, re.IGNORECASE), path
        assert not re.search(r"<[^>]*\son\w+\s*=", text), path
        assert "Content-Security-Policy" in text
    elif path.suffix == ".md":
        prose = re.sub(r"^    .*", "", text, flags=re.MULTILINE)  # without commands, which are code
        assert not re.search(r"(?<!\\)<(img|script)", prose), path
    elif path.suffix in (".json", ".sarif"):
        json.loads(text)


@pytest.mark.parametrize(
    "command", ["inspect", "inspect runs-on", "diff", "debug", "profile", "bench", "view", "extract", "run"]
)
def test_names_stay_text_in_every_document(command: str, name: str, target: Target) -> None:
    run = target.run(*COMMANDS[command](name), "--json", timeout=120)
    assert run.code in (0, 1, 2, 3, 4), run.stderr
    assert all(line.isprintable() for line in (run.stdout + run.stderr).split("\n"))
    json.loads(run.stdout)


@pytest.mark.skipif(find_spec("netron") is None, reason="needs netron: make venv")
def test_names_are_text_in_netron(tmp_path: Path) -> None:
    """Netron draws them into pages that may run scripts of this server."""
    onnx.save(model_of(PAGE), tmp_path / "bad.onnx")
    shutil.copy(tmp_path / "bad.onnx", tmp_path / "<img src=x onerror=alert(1)>.onnx")
    models = [Artifact.open(tmp_path / name) for name in ("bad.onnx", "<img src=x onerror=alert(1)>.onnx")]
    with open_server(models, []) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        seen = [
            chromium.visit(f"{address}{page}", "--virtual-time-budget=20000", "--dump-dom")
            for page in ("0/", "")
        ]
        server.shutdown()
    drawn, both = (each.stdout for each in seen)
    assert "onerror=" in drawn, "the model is not drawn at all"
    assert "<title>Netron</title>" in drawn
    for visit in seen:
        assert not re.search(r"<(title)>pwned", visit.stdout)
        assert not re.search(r"<img[^>]*\bx\b", visit.stdout)
        assert not [line for line in visit.console if "alert" in line or 'x"' in line]
    assert "&lt;img src=x onerror=alert(1)&gt;.onnx" in both
