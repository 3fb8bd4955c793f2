"""LiteRT's delegates: what XNNPACK took, and what the GPU delegate would by its own rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from onnxport.core.errors import InputError
from onnxport.deployment.analysis import analyze_deployment
from onnxport.deployment.litert.conversion import ConvertedModel, convert_once
from onnxport.deployment.params import DeploymentParams
from onnxport.deployment.probes import ProbeOptions, tflite_cpu, tflite_gpu
from onnxport.deployment.probes.tflite_gpu import estimate_gpu
from onnxport.deployment.report import Fallback, Placement
from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.graph.delegation import divide
from tests.cli.sandbox import Sandbox

# XNNPACK has no TopK, and what is on both sides of it cannot run together.
CUT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,3] y, int64[1,3] i) <int64[1] k = {3}> {
  [first] a = Add(x, x)
  [top] v, i = TopK(a, k)
  [last] y = Abs(v)
}"""
# The work is in the bodies; one has a power of a kind that XNNPACK lacks.
BODIES = """<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[2,4] x) => (float[2,4] y) {
  [choice] y = If(c) <
    then_branch = t () => (float[2,4] a) { n = Neg(x)
      a = Abs(n) },
    else_branch = e () => (float[2,4] b) { s = Sin(x)
      p = Pow(s, x)
      b = Abs(p) }>
}"""

CUSTOM = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> g (float[1,8] x) => (float[1,8] y) {
  a = Abs(x)
  [strange] y = acme.Foo(a)
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("litert")


@pytest.fixture(scope="module")
def cut(folder: Path) -> ConvertedModel:
    onnx.save(onnx.parser.parse_model(CUT), folder / "cut.onnx")
    return convert_once(folder / "cut.onnx", folder)


def options(runtime: str, folder: Path) -> ProbeOptions:
    return ProbeOptions(runtime, runtime, folder, folder)


def test_nodes_are_those_of_an_interpreter_without_delegates(cut: ConvertedModel) -> None:
    plain = Interpreter(
        str(cut.file.path), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    told = [each["op_name"] for each in plain._get_ops_details()]
    assert [node.op for node in cut.file.main.graph.nodes] == told == ["ADD", "TOPK_V2", "CAST", "ABS"]


def test_what_xnnpack_left_is_named_as_the_onnx_model_names_it(cut: ConvertedModel, folder: Path) -> None:
    partitions = tflite_cpu.find_partitions(cut, 1)
    assert sorted(sorted(node.op for node in each) for each in partitions.taken) == [["ABS"], ["ADD"]]
    left = [node for node in cut.file.main.graph.nodes if not any(node in each for each in partitions.taken)]
    assert [cut.fallback(node, "w") for node in left] == [
        Fallback(op="TopK", node="top", why="TOPK_V2: w"),
        Fallback(op="TopK", node="top", why="CAST: w"),
    ]


def test_fallbacks_of_a_tflite_file_have_its_own_names(cut: ConvertedModel, folder: Path) -> None:
    answer = tflite_cpu.probe(cut.file.path, options("tflite-cpu", folder))
    assert (answer.how, answer.extent, answer.nodes, answer.taken, answer.partitions) == (
        "asked",
        "part",
        4,
        2,
        2,
    )
    assert [(each.op, each.node) for each in answer.fallbacks] == [("TOPK_V2", "v"), ("CAST", "i")]
    assert answer.fallbacks[0].why == "XNNPACK has no such operator"


def test_bodies_are_probed_too(folder: Path, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(BODIES), tmp_path / "bodies.onnx")
    about = convert_once(tmp_path / "bodies.onnx", tmp_path)
    cpu = tflite_cpu.probe(about.file.path, options("tflite-cpu", tmp_path))
    assert {each.op for each in cpu.fallbacks} == {"IF", "POW"}
    assert (cpu.nodes, cpu.taken, cpu.partitions) == (6, 4, 3)
    gpu = tflite_gpu.probe(about.file.path, options("tflite-gpu", tmp_path))
    assert {(each.op, each.why) for each in gpu.fallbacks if each.op == "IF"} == {
        ("IF", "the runtime has no operator IF")
    }


def test_command(cut: ConvertedModel, tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    path = sandbox.folder / "cut.tflite"
    path.write_bytes(cut.file.path.read_bytes())
    outcome = sandbox.run("inspect", path.name, "--runs-on", "tflite-cpu,tflite-gpu", "--json")
    cpu, gpu = (Placement.model_validate(each) for each in outcome.document["placements"])
    assert (cpu.how, cpu.taken, gpu.how, gpu.taken) == ("asked", 2, "estimated", 1)
    assert gpu.source.startswith("https://github.com/google-ai-edge/LiteRT/")
    assert sandbox.run("inspect", path.name, "--runs-on", "tflite-cpu", "--error-on-fallback").code == 1


def test_a_file_that_is_no_tflite_model_is_refused_before_any_probe(
    cut: ConvertedModel, tmp_path: Path
) -> None:
    params = DeploymentParams.model_validate({"runs_on": "tflite-cpu,tflite-gpu"})
    for content in (b"hello", cut.file.path.read_bytes()[:400]):
        (tmp_path / "damaged.tflite").write_bytes(content)
        with pytest.raises(InputError):
            analyze_deployment(tmp_path / "damaged.tflite", params)


def test_a_model_that_litert_does_not_load_is_not_taken(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(CUSTOM), tmp_path / "custom.onnx")
    refused = tflite_cpu.probe(tmp_path / "custom.onnx", options("tflite-cpu", tmp_path))
    assert (refused.extent, refused.nodes, refused.partitions) == ("none", 2, None)
    assert [(each.op, each.node) for each in refused.fallbacks] == [("acme::Foo", "strange")]


def tensor(name: str, shape: Sequence[int], dtype: str = "float32", *, constant: bool = False) -> Tensor:
    return Tensor(name, dtype, tuple(shape), is_constant=constant)


def chain(*nodes: Node) -> OperatorGraph:
    return OperatorGraph(list(nodes)).link()


def operator(
    op: str, inputs: Sequence[Tensor], output: Tensor, version: int = 1, **attributes: object
) -> Node:
    return Node(op, version=version, inputs=tuple(inputs), outputs=(output,), attributes=attributes)


X = tensor("x", [1, 4, 4, 8])
Y = tensor("y", [1, 4, 4, 8])


# Each by hand from gpu_compatibility.cc and model_builder.cc.
@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (operator("RELU", [X], Y, 2), ""),
        (operator("RELU", [X], Y, 3), "version 3 of the operator, at most 2"),
        (operator("CEIL", [X], Y), "the runtime has no operator CEIL"),
        (
            operator("ABS", [tensor("x", [1, 1, 4, 4, 8])], tensor("y", [1, 1, 4, 4, 8])),
            "rank 5 of 'x', at most 4",
        ),
        (operator("ABS", [tensor("x", [1, 4], "int32")], tensor("y", [1, 4], "int32")), "'x' is int32"),
        (operator("CAST", [tensor("x", [1, 4], "int32")], tensor("y", [1, 4])), ""),
        (operator("CAST", [tensor("x", [1, 4])], tensor("y", [1, 4], "int64")), "'y' is int64"),
        (operator("GATHER", [X, tensor("i", [2], "int32", constant=True)], Y), ""),
        (operator("GATHER", [X, tensor("i", [2, 2], "int32", constant=True)], Y), "rank 2 of 'i', only 1"),
        (operator("MEAN", [X, tensor("a", [2], "int32", constant=True)], Y), ""),
        (operator("MEAN", [X, tensor("a", [2], "int32")], Y), "'a' is int32"),
        (operator("SOFTMAX", [X], Y, beta=2.0), "beta is 2, it takes 1"),
        (operator("ADD", [X, tensor("b", [4, 8])], Y), "it does not broadcast [1, 4, 4, 8] and [4, 8]"),
        (operator("ADD", [X, tensor("b", [4, 4, 8])], Y), ""),
        (operator("ADD", [X, tensor("b", [8], constant=True)], Y), ""),
        (operator("PAD", [X, tensor("p", [4, 2], "int32", constant=True)], Y), ""),
        (
            operator("PAD", [X, tensor("p", [2, 2], "int32", constant=True)], Y),
            "it pads 2 dimensions, 3 to 4",
        ),
        (operator("STRIDED_SLICE", [X, X, X, X], Y, shrinkAxisMask=1), "shrinkAxisMask is 1"),
        (
            operator("GREATER", [X, Y], tensor("z", [1, 4, 4, 8], "bool")),
            "its result must be read by exactly one CAST",
        ),
    ],
    ids=lambda value: value.op if isinstance(value, Node) else value[:20],
)
def test_rules_of_the_gpu_delegate(node: Node, reason: str) -> None:
    found = next(iter(estimate_gpu(chain(node)).left.values()), "")
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_the_gpu_delegate_takes_the_largest_group_alone() -> None:
    values = [tensor(f"v{i}", [1, 4]) for i in range(6)]
    ops = ["ABS", "CEIL", "NEG", "EXP", "CEIL"]
    nodes = [operator(op, [a], b) for op, a, b in zip(ops, values, values[1:], strict=False)]
    found = estimate_gpu(chain(*nodes))
    assert [{node.op for node in group} for group in found.taken] == [{"NEG", "EXP"}]
    assert (
        found.left[nodes[0]] == "it is in a group of 1, and the delegate takes only the largest group, of 2"
    )


def test_weights_of_float16_are_read_as_they_are() -> None:
    half, wide = tensor("h", [8, 1, 1, 8], "float16", constant=True), tensor("w", [8, 1, 1, 8])
    graph = chain(operator("DEQUANTIZE", [half], wide, 3), operator("CONV_2D", [X, wide], Y))
    assert not estimate_gpu(graph).left
    assert len(estimate_gpu(graph).taken) == 1


def test_a_subset_takes_what_is_ready_in_whatever_order() -> None:
    """Two chains side by side, one after the other in the file: the delegate's part of both runs at once."""
    a = [tensor(f"a{i}", [1]) for i in range(3)]
    b = [tensor(f"b{i}", [1]) for i in range(3)]
    nodes = [
        operator("ABS", [a[0]], a[1]),
        operator("CEIL", [a[1]], a[2]),
        operator("ABS", [b[0]], b[1]),
        operator("CEIL", [b[1]], b[2]),
    ]
    found = divide(chain(*nodes), {nodes[0], nodes[2]})
    assert [(each.delegated, len(each.nodes)) for each in found] == [(True, 2), (False, 2)]


def test_subsets_keep_the_order_of_side_effects() -> None:
    """IF is ready at once, and waits for WHILE, which comes before it in the file."""
    z, ceiled, p = tensor("z", [1]), tensor("c", [1]), tensor("p", [1])
    nodes = [
        operator("CEIL", [z], ceiled),
        operator("ABS", [ceiled], p),
        operator("WHILE", [p], tensor("w", [1])),
        operator("IF", [z], tensor("i", [1])),
    ]
    found = divide(chain(*nodes), {nodes[1]})
    assert [[node.op for node in each.nodes] for each in found] == [["CEIL"], ["ABS"], ["WHILE", "IF"]]
