"""Graphs and findings for viewers: what Model Explorer reads, and the page with Netron."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxport
from onnxport.cli.commands import cli
from onnxport.core.errors import InputError, UsageError
from onnxport.formats.artifact import Artifact
from onnxport.reports.model_view.files import export_views
from onnxport.reports.model_view.graphs import document, read_graphs
from onnxport.reports.model_view.overlays import overlays_for, read_overlays
from tests.reports import chromium

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its artefact, and one with wrong weights in conv2."""
    folder = tmp_path_factory.mktemp("view")
    model = onnx.load(DIGITS)
    onnx.save(model, folder / "digits.onnx")
    onnxport.convert_model(DIGITS, "tflite", folder / "digits.tflite", samples=1)
    second = next(node for node in model.graph.node if node.op_type == "Conv" and node.name == "conv2")
    weight = next(each for each in model.graph.initializer if each.name == second.input[1])
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.1), weight.name))
    onnx.save(model, folder / "wrong.onnx")
    return folder


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    code = cli.main(list(map(str, arguments)), standalone_mode=False)
    out = capsys.readouterr().out
    assert code in (0, 1), out
    return out


def exported(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def test_graph_has_the_nodes_and_edges_of_the_model() -> None:
    model = onnx.load(DIGITS).graph
    (main,) = document("digits", read_graphs(Artifact.open(DIGITS)))["graphs"]
    nodes = {node["id"]: node for node in main["nodes"]}
    assert [nodes[node.name]["label"] for node in model.node] == [node.op_type for node in model.node]
    maker = {output: node.name for node in model.node for output in node.output} | {"image": "input 0"}
    for node in model.node:
        edges = [edge["sourceNodeId"] for edge in nodes[node.name].get("incomingEdges", [])]
        assert edges == [maker[name] for name in node.input if name in maker]
    (last,) = nodes["output 0"]["incomingEdges"]
    assert last["sourceNodeId"] == maker["logits"]


def test_bodies_are_graphs_of_their_own_and_equal_names_stay_apart(tmp_path: Path) -> None:
    branches = {
        name: helper.make_graph(
            [
                helper.make_node(op, ["x"], ["y"], name="same"),
                helper.make_node("Neg", ["y"], [name], name="same"),
            ],
            name,
            [],
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])],
        )
        for name, op in (("then", "Abs"), ("else", "Exp"))
    }
    choice = helper.make_node(
        "If", ["c"], ["z"], name="if", then_branch=branches["then"], else_branch=branches["else"]
    )
    inputs = [
        helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2]),
    ]
    outputs = [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [2])]
    onnx.save(helper.make_model(helper.make_graph([choice], "g", inputs, outputs)), tmp_path / "if.onnx")
    graphs = document("if", read_graphs(Artifact.open(tmp_path / "if.onnx")))["graphs"]
    assert [graph["id"] for graph in graphs] == ["main", "main/if.else_branch", "main/if.then_branch"]
    node = next(node for node in graphs[0]["nodes"] if node["id"] == "if")
    assert node["subgraphIds"] == ["main/if.else_branch", "main/if.then_branch"]
    then = [node for node in graphs[2]["nodes"] if node["label"] in ("Abs", "Neg")]
    assert [node["id"] for node in then] == ["same", "same_2"]
    assert then[1]["incomingEdges"][0]["sourceNodeId"] == "same"


def test_the_node_at_fault_has_the_largest_error_of_its_own(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "debug.json"
    wrong = folder / "wrong.onnx"
    report.write_text(printed(capsys, "debug", folder / "digits.onnx", wrong, "--samples", "1", "--json"))
    printed(capsys, "view", folder / "digits.onnx", wrong, "--data", report, "--export", tmp_path / "out")
    data = exported(tmp_path / "out", "wrong.onnx.error-of-the-node-alone.json")["main"]
    errors = {key: result["value"] for key, result in data["results"].items()}
    assert max(errors, key=errors.__getitem__) == "conv2"
    assert errors["conv2"] > 100 > errors["conv1"]


def test_times_are_of_the_profiled_file_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "profile", folder / "digits.onnx", "--runs", "5", "--json")
    (tmp_path / "profile.json").write_text(text)
    files = printed(
        capsys,
        "view",
        folder / "digits.onnx",
        folder / "digits.tflite",
        "--data",
        tmp_path / "profile.json",
        "--export",
        tmp_path / "out",
        "--json",
    )
    times = [path for path in json.loads(files)["written"] if ".ms-in" in path]
    assert [Path(path).name.partition(".ms")[0] for path in times] == ["digits.onnx"]
    data = exported(tmp_path / "out", Path(times[0]).name)["main"]["results"]
    spent = json.loads(text)
    assert sum(each["value"] for each in data.values()) == pytest.approx(spent["nodes_ms"], rel=0.01)
    precision = exported(tmp_path / "out", "digits.tflite.precision.json")["main"]["results"]
    assert {each["value"] for each in precision.values()} == {"float32"}


def test_nodes_that_a_runtime_leaves_are_marked_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "inspect", DIGITS, "--runs-on", "nnapi", "--json")
    (tmp_path / "on.json").write_text(text)
    (overlay,) = read_overlays(tmp_path / "on.json")
    fallbacks = json.loads(text)["placements"][0]["fallbacks"]
    (viewed,) = read_graphs(Artifact.open(DIGITS))
    assert overlay.of(viewed) == {each["node"]: f"left: {each['why']}" for each in fallbacks}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is not JSON"),
        ("[1]", "it is other JSON"),
        ("{}", "it is another document"),
        ('{"placements": 5}', "command: Field required"),
    ],
)
def test_what_has_no_findings_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_overlays(tmp_path / "x.json")


def test_a_report_about_another_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.json").write_text(printed(capsys, "profile", DIGITS, "--runs", "3", "--json"))
    other = tmp_path / "other.onnx"
    other.write_bytes(DIGITS.read_bytes())
    with pytest.raises(InputError, match=r"is about digits\.onnx"):
        overlays_for([tmp_path / "p.json"], [Artifact.open(other)])


def test_an_existing_folder_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="exists"):
        export_views([Artifact.open(DIGITS)], [], tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


needs_netron = pytest.mark.skipif(
    find_spec("netron") is None and not os.environ.get("CI"), reason="needs netron: make venv"
)


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """The page of the command, which ends with exit 0 by Ctrl-C."""
    command = [sys.executable, "-m", "onnxport", "view", "--no-browser"]
    inherited = filter(None, (os.environ.get("PYTHONPATH"),))
    running = subprocess.Popen(
        [*command, folder / "digits.onnx", folder / "digits.tflite"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), *inherited))},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        yield running.stdout.readline().split()[0]
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=20) == 0
    finally:
        running.kill()
        running.wait()


def asked(address: str, path: str, host: str = "") -> tuple[int, bytes, str]:
    where = urlsplit(address)
    connection = http.client.HTTPConnection(where.netloc, timeout=10)
    connection.request("GET", path, headers={"Host": host or where.netloc})
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers["Content-Security-Policy"]


@needs_netron
def test_the_page_gives_out_the_models_alone_and_loads_nothing_else(address: str, folder: Path) -> None:
    assert urlsplit(address).hostname == "127.0.0.1"
    status, page, policy = asked(address, "/")
    assert (status, "connect-src 'self'" in policy) == (200, True)
    assert b'src="/0/"' in page
    assert b'src="/1/"' in page
    assert asked(address, "/0/data/digits.onnx")[1] == (folder / "digits.onnx").read_bytes()
    netron = asked(address, "/1/")[1]
    assert b'name="file" content="data/digits.tflite"' in netron
    assert asked(address, "/1/index.js")[0] == 200
    for path in (
        "/0/data/wrong.onnx",
        "/0/data/../wrong.onnx",
        "/0/..%2fserver.py",
        "/0/server.py",
        "/etc/passwd",
    ):
        assert asked(address, path)[0] == 404, path
    assert asked(address, "/", host="rebound.example:80")[0] == 404


@needs_netron
def test_netron_starts_without_a_complaint(address: str) -> None:
    visit = chromium.dom(f"{address}0/")
    assert visit.console == []
    assert "consent" not in visit.stdout
    assert "welcome" in visit.stdout


def test_without_netron_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxport.core.errors import MissingDependencyError
    from onnxport.reports.model_view import server

    monkeypatch.setattr(server.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"onnxport\[view\]"):
        server.open_server([Artifact.open(DIGITS)], [])
