"""`--runs-on litert-gpu`: LiteRT's GPU runtime is asked whether it takes a file whole."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnxport.core.errors import MissingDependencyError
from onnxport.deployment.analysis import analyze_deployment
from onnxport.deployment.params import DeploymentParams
from onnxport.deployment.runtimes import RUNTIMES, select_runtimes
from onnxport.reports.deployment import html, terminal
from tests.runtimes.test_litert_gpu import needs_device

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,8,8] x) => (float[1,4,8,8] y) {
  [first] a = Mul(x, x)
  [gate] y = HardSigmoid(a)
}"""
ASKED = DeploymentParams(runs_on="litert-gpu")


def saved(text: str, folder: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    return folder / "model.onnx"


@needs_device
def test_a_node_that_it_lacks_is_named(tmp_path: Path) -> None:
    (found,) = analyze_deployment(saved(NETWORK, tmp_path), ASKED).placements
    assert (found.how, found.extent) == ("asked", "none")
    assert [(each.op, each.node) for each in found.fallbacks] == [("HardSigmoid", "gate")]
    assert "RELU_0_TO_1" in found.fallbacks[0].why
    assert found.change is not None
    assert found.change.command == f"onnxport convert {tmp_path / 'model.onnx'} --to tflite --fit gpu"
    assert (found.partitions, found.copies) == (1, 1)
    assert [(each.accelerated, each.nodes) for each in found.runs] == [
        (True, 3),  # Mul, and what HardSigmoid became
        (False, 1),
    ]


@needs_device
def test_runs_of_nodes_and_copies_are_in_the_page(tmp_path: Path) -> None:
    gates = NETWORK.replace("y = HardSigmoid(a)", "b = HardSigmoid(a) c = Tanh(b) [end] y = Mul(c, a)")
    report = analyze_deployment(saved(gates, tmp_path), ASKED)
    (found,) = report.placements
    assert [each.accelerated for each in found.runs] == [True, False, True]
    assert found.copies == 2
    page = html.view(report)
    assert "It would run in 3 turns with the CPU, 2 values copied" in page
    assert "3 turns with the CPU, 2 values copied" in terminal.lines(report)
    assert "CPU: 1 node" in terminal.lines(report, detailed=True)


@needs_device
def test_a_file_that_it_takes_whole_names_the_device(tmp_path: Path) -> None:
    report = analyze_deployment(saved(NETWORK.replace("HardSigmoid", "Tanh"), tmp_path), ASKED)
    (found,) = report.placements
    assert (found.extent, found.taken, found.fallbacks) == ("all", found.nodes, ())
    assert found.notes[0].startswith("asked on ")


@needs_device
def test_open_sizes_are_a_reason(tmp_path: Path) -> None:
    (found,) = analyze_deployment(
        saved(NETWORK.replace("[1,4,8,8]", "[N,4,8,8]"), tmp_path), ASKED
    ).placements
    assert found.extent == "none"
    assert "it takes fixed sizes" in found.why


def test_it_is_asked_by_name_only_and_says_what_it_needs() -> None:
    assert "litert-gpu" not in {each.name for each in select_runtimes(("all",), "tflite")}
    error = RUNTIMES["litert-gpu"].missing()
    assert isinstance(error, MissingDependencyError)
    assert "needs a Vulkan device" in str(error)
    assert "docs/guide/gpu.md" in error.fix
