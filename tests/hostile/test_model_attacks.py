"""Models made to read other files, to grow without end, or to speak for the program."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.runtimes.base import MemoryFullError
from onnxport.runtimes.isolation import IsolatedRuntime
from onnxport.runtimes.memory_limit import MemoryLimit
from onnxport.runtimes.options import RuntimeOptions
from tests.hostile.attacking import Case, Target, registering
from tests.hostile.subjects import control_flow

CASES: dict[str, Case] = {}
attack = registering(CASES)
INSPECT = ("inspect", "bad.onnx")
FLOAT = TensorProto.FLOAT
_LITTLE = ("--limit", "child-memory=700M")


def value(name: str, dims: Sequence[int | str] = ("N", 4), type_: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, dims)


def save(target: Target, nodes: Sequence[onnx.NodeProto], *weights: onnx.TensorProto, **more: object) -> None:
    graph = helper.make_graph(nodes, "graph", [value("x")], [value("y")], list(weights))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, **more)
    (target.folder / "bad.onnx").write_bytes(model.SerializeToString())


def external(location: str, name: str = "w", size: int = 4, **entries: str) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=FLOAT, dims=[size], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=text)
    return tensor


def weighed(target: Target, location: str, **entries: str) -> tuple[str, ...]:
    save(target, [helper.make_node("Add", ["x", "w"], ["y"])], external(location, **entries))
    return INSPECT


# ---- external data


@attack(4, "outside the model's folder")
def weights_above_the_folder(target: Target) -> tuple[str, ...]:
    return weighed(target, "../secret.bin")


@attack(4, "outside the model's folder")
def weights_above_the_folder_by_a_detour(target: Target) -> tuple[str, ...]:
    (target.folder / "sub").mkdir()
    return weighed(target, "sub/../../secret.bin")


@attack(4, "outside the model's folder")
def weights_at_an_absolute_path(target: Target) -> tuple[str, ...]:
    return weighed(target, str(target.secret))


@attack(4, "outside the model's folder")
def weights_behind_a_link(target: Target) -> tuple[str, ...]:
    (target.folder / "w.bin").symlink_to(target.secret)
    return weighed(target, "w.bin")


@attack(4, "outside the model's folder")
def weights_behind_a_linked_folder(target: Target) -> tuple[str, ...]:
    (target.folder / "sub").symlink_to(target.folder.parent)
    return weighed(target, "sub/secret.bin")


@attack(4, "a hard link")
def weights_under_a_second_name(target: Target) -> tuple[str, ...]:
    os.link(target.secret, target.folder / "w.bin")
    return weighed(target, "w.bin")


@attack(4, "w.bin")
def weights_that_are_a_pipe(target: Target) -> tuple[str, ...]:
    os.mkfifo(target.folder / "w.bin")
    return weighed(target, "w.bin")


@attack(4, "outside the model's folder")
def weights_without_an_end(target: Target) -> tuple[str, ...]:
    return weighed(target, "/dev/zero")


@attack(4, "bad.onnx")
def weights_in_a_file_with_a_null_character(target: Target) -> tuple[str, ...]:
    return weighed(target, "w\0.bin")


@attack(4, "bad.onnx")
def weights_in_a_file_with_an_endless_name(target: Target) -> tuple[str, ...]:
    return weighed(target, "w" * 5000)


@attack(4, "bad.onnx")
def weights_before_the_file(target: Target) -> tuple[str, ...]:
    (target.folder / "w.bin").write_bytes(bytes(64))
    return weighed(target, "w.bin", offset="-16")


@attack(4, "too short")
def weights_behind_the_file(target: Target) -> tuple[str, ...]:
    (target.folder / "w.bin").write_bytes(bytes(64))
    return weighed(target, "w.bin", offset=str(2**64 - 1))


@attack(4, "its shape")
def weights_of_another_length(target: Target) -> tuple[str, ...]:
    (target.folder / "w.bin").write_bytes(bytes(64))
    return weighed(target, "w.bin", length="64")


@attack(4, "its weights overlap")
def weights_that_overlap_to_a_terabyte(target: Target) -> tuple[str, ...]:
    (target.folder / "w.bin").write_bytes(bytes(4_000_000))
    many = [external("w.bin", f"w{number}", 1_000_000) for number in range(1000)]
    save(target, [helper.make_node("Add", ["x", "w0"], ["y"])], *many)
    return ("convert", "bad.onnx", "--to", "ort", "--no-validate", "-o", "out.ort")


@attack(4, "outside the model's folder")
def weights_above_the_folder_in_a_function(target: Target) -> tuple[str, ...]:
    constant = helper.make_node("Constant", [], ["w"], value=external("../secret.bin"))
    body = [constant, helper.make_node("Add", ["a", "w"], ["b"])]
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    save(target, [helper.make_node("F", ["x"], ["y"], domain="own")], functions=[function])
    return INSPECT


@attack(4, "outside the model's folder")
def weights_above_the_folder_in_a_branch(target: Target) -> tuple[str, ...]:
    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["b"])], "g", [], [value("b")], [external("../secret.bin")]
    )
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    save(target, [helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner)], yes)
    return INSPECT


@attack(4, "the ONNX checker says", "'nowhere'")
def name_that_nothing_makes_beside_external_weights(target: Target) -> tuple[str, ...]:
    (target.folder / "w.bin").write_bytes(bytes(16))
    save(target, [helper.make_node("Add", ["nowhere", "w"], ["y"])], external("w.bin"))
    return INSPECT


# ---- growth


@attack(4, "bad.onnx")
def graphs_in_graphs(target: Target) -> tuple[str, ...]:
    inner = b""
    for _ in range(5000):  # GraphProto.node, NodeProto.attribute, AttributeProto.g
        for field in (6, 5, 1):
            inner = bytes([field << 3 | 2]) + _varint(len(inner)) + inner
    (target.folder / "bad.onnx").write_bytes(b"\x08\x0a\x3a" + _varint(len(inner)) + inner)
    return INSPECT


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


@attack(4, "too large to be read", "at most 500,000")
def nodes_of_two_bytes(target: Target) -> tuple[str, ...]:
    nodes = b"\x0a\x00" * 2_000_000
    (target.folder / "bad.onnx").write_bytes(b"\x08\x0a\x3a" + _varint(len(nodes)) + nodes)
    return INSPECT


@attack(4, "too large to be read", "at most 500,000")
def attributes_of_two_bytes(target: Target) -> tuple[str, ...]:
    node = b"\x2a\x00" * 2_000_000
    graph = b"\x0a" + _varint(len(node)) + node
    (target.folder / "bad.onnx").write_bytes(b"\x08\x0a\x3a" + _varint(len(graph)) + graph)
    return INSPECT


@attack(4, "with its functions inlined")
def functions_that_double_forty_times(target: Target) -> tuple[str, ...]:
    """The billion laughs of ONNX: each function calls the next one twice."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = []
    for number in range(40):
        name = f"F{number + 1}"
        calls = [
            helper.make_node(name, ["a"], ["m"], domain="own"),
            helper.make_node(name, ["m"], ["b"], domain="own"),
        ]
        functions.append(helper.make_function("own", f"F{number}", ["a"], ["b"], calls, opsets))
    last = [helper.make_node("Relu", ["a"], ["b"])]
    functions.append(helper.make_function("own", "F40", ["a"], ["b"], last, opsets))
    save(target, [helper.make_node("F0", ["x"], ["y"], domain="own")], functions=functions)
    return ("optimize", "bad.onnx", "-o", "out.onnx")


@attack(4, "calls itself")
def function_that_calls_itself(target: Target) -> tuple[str, ...]:
    calls = [helper.make_node("F", ["a"], ["b"], domain="own")]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "F", ["a"], ["b"], calls, opsets)]
    save(target, [helper.make_node("F", ["x"], ["y"], domain="own")], functions=functions)
    return ("optimize", "bad.onnx", "-o", "out.onnx")


@attack(4, "it has two functions own::F")
def functions_of_one_name(target: Target) -> tuple[str, ...]:
    body, opsets = [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "F", ["a"], ["b"], body, opsets)
    save(target, [helper.make_node("F", ["x"], ["y"], domain="own")], functions=[function, function])
    model = onnx.load(target.folder / "bad.onnx")
    model.graph.output[0].type.tensor_type.ClearField("shape")  # asks ONNX's shape inference
    onnx.save(model, target.folder / "bad.onnx")
    return INSPECT


@attack(3, "its Constant 'c' has no value")
def function_whose_constant_has_no_value(target: Target) -> tuple[str, ...]:
    """The call leaves out the attribute that its Constant refers to."""
    constant = helper.make_node("Constant", [], ["v"], "c")
    constant.attribute.add(name="value_float", type=onnx.AttributeProto.FLOAT, ref_attr_name="given")
    body = [constant, helper.make_node("Mul", ["a", "v"], ["b"])]
    opsets = [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "F", ["a"], ["b"], body, opsets, ["given"])
    save(target, [helper.make_node("F", ["x"], ["y"], domain="own")], functions=[function])
    return ("inspect", "bad.onnx", "--runs-on", "nnapi")


@attack(4, "bad.onnx")
def nodes_that_need_each_other(target: Target) -> tuple[str, ...]:
    save(target, [helper.make_node("Add", ["x", "b"], ["y"]), helper.make_node("Relu", ["y"], ["b"])])
    return INSPECT


@attack(4, "bad.onnx")
def weight_of_an_exabyte_without_data(target: Target) -> tuple[str, ...]:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[2**30, 2**30])
    save(target, [helper.make_node("Add", ["x", "w"], ["y"])], weight)
    return ("convert", "bad.onnx", "--to", "ort", "--no-validate", "-o", "out.ort")


@attack(4, "bad.onnx")
def weight_of_a_negative_size(target: Target) -> tuple[str, ...]:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[-4], raw_data=bytes(16))
    save(target, [helper.make_node("Add", ["x", "w"], ["y"])], weight)
    return INSPECT


@attack(4, "weight 'w' of bad.onnx cannot be read: it has 12 bytes, and its shape [4] takes 16")
def weight_of_fewer_bytes_than_its_shape(target: Target) -> tuple[str, ...]:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[4], raw_data=bytes(12))
    save(target, [helper.make_node("Add", ["x", "w"], ["y"])], weight)
    return INSPECT


@attack(4, "weight 'w' of bad.onnx cannot be read")
def weight_of_fewer_numbers_than_its_shape(target: Target) -> tuple[str, ...]:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[2**20], float_data=[1.0, 2.0])
    save(target, [helper.make_node("Add", ["x", "w"], ["y"])], weight)
    return INSPECT


@attack(4, "bad.onnx")
def weight_of_no_type(target: Target) -> tuple[str, ...]:
    weight = TensorProto(name="w", dims=[4], raw_data=bytes(16))
    save(target, [helper.make_node("Add", ["x", "w"], ["y"])], weight)
    return INSPECT


@attack(4, "'w' of bad.onnx", "it has no element type")
def weight_of_no_type_as_numbers(target: Target) -> tuple[str, ...]:
    weight = TensorProto(name="w", dims=[4], float_data=[1.0, 2.0, 3.0, 4.0])
    save(target, [helper.make_node("Add", ["x", "w"], ["y"])], weight)
    return INSPECT


@attack(4, "its Constant 'c' has 0 attributes")
def constant_without_a_value(target: Target) -> tuple[str, ...]:
    save(target, [helper.make_node("Constant", [], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])])
    return INSPECT


@attack(4, "its Constant 'c' has 2 attributes")
def constant_of_two_values_in_a_branch(target: Target) -> tuple[str, ...]:
    constant = helper.make_node("Constant", [], ["c"], value_int=1, value_float=2.0)
    body = helper.make_graph([constant], "branch", [], [value("c", [])])
    save(target, [helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body)])
    return INSPECT


@attack(4, "'value' of its Constant 'c' has no element type")
def constant_of_no_type(target: Target) -> tuple[str, ...]:
    constant = helper.make_node("Constant", [], ["c"], value=TensorProto(name="c", float_data=[1.0]))
    save(target, [constant, helper.make_node("Add", ["x", "c"], ["y"])])
    return INSPECT


@attack(4, "'alpha' of its Elu 'e' says that it is of the type GRAPH and is not")
def attribute_of_another_type(target: Target) -> tuple[str, ...]:
    node = helper.make_node("Elu", ["x"], ["y"], "e", alpha=2.0)
    node.attribute[0].type = onnx.AttributeProto.GRAPH
    save(target, [node])
    return INSPECT


@attack(4, "'w' of bad.onnx")
def weight_with_more_elements_than_numbers_hold(target: Target) -> tuple[str, ...]:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[2**62] * 20, raw_data=bytes(16))
    save(target, [helper.make_node("Add", ["x", "w"], ["y"])], weight)
    return INSPECT


@attack(0)
def reshape_to_a_scalar(target: Target) -> tuple[str, ...]:
    shape = numpy_helper.from_array(np.array(4), "shape")
    save(target, [helper.make_node("Reshape", ["x", "shape"], ["y"])], shape)
    return INSPECT


def _loop(inputs: Sequence[str], **body: onnx.GraphProto) -> onnx.NodeProto:
    return helper.make_node("Loop", inputs, ["y"], "loop", **body)


@attack(4, "its Loop 'loop' has no body")
def loop_without_a_body(target: Target) -> tuple[str, ...]:
    save(target, [_loop(["", "", "x"])])
    return INSPECT


@attack(4, "'body' of its Loop 'loop' has 4 inputs and 2 outputs, and needs 3 and 2")
def loop_whose_body_takes_more(target: Target) -> tuple[str, ...]:
    bool_ = TensorProto.BOOL
    takes = [value("i", [], TensorProto.INT64), value("go", [], bool_), value("v"), value("u")]
    node = helper.make_node("Relu", ["v"], ["w"])
    body = helper.make_graph([node], "body", takes, [value("go", [], bool_), value("w")])
    save(target, [_loop(["", "", "x"], body=body)])
    return INSPECT


def _without_text(target: Target, name: bytes) -> tuple[str, ...]:
    """The saved model with bytes that are no UTF-8 for a name."""
    file = target.folder / "bad.onnx"
    assert name in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(name, b"\xff\x80" + name[2:]))
    return INSPECT


@attack(4, "names or doc strings that are not UTF-8")
def operator_that_is_no_text(target: Target) -> tuple[str, ...]:
    save(target, [helper.make_node("Relu", ["x"], ["y"], domain="own")])
    return _without_text(target, b"Relu")


@attack(4, "names or doc strings that are not UTF-8")
def doc_string_that_is_no_text(target: Target) -> tuple[str, ...]:
    save(target, [helper.make_node("Relu", ["x"], ["y"], doc_string="rectified")])
    _without_text(target, b"rectified")
    return "convert", "bad.onnx", "--to", "ort", "--no-validate", "-o", "out.ort"


@attack(4, "names or doc strings that are not UTF-8")
def place_of_weights_that_is_no_text(target: Target) -> tuple[str, ...]:
    weighed(target, "w.bin", offset="12345")
    return _without_text(target, b"12345")


@attack(4, "bad.onnx")
def constant_of_fewer_bytes_than_its_shape(target: Target) -> tuple[str, ...]:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[2**40], raw_data=bytes(12))
    constant = helper.make_node("Constant", [], ["w"], value=weight)
    save(target, [constant, helper.make_node("Add", ["x", "w"], ["y"])])
    return INSPECT


def _folded(target: Target, op: str, *inputs: object) -> tuple[str, ...]:
    """A node on constants, whose result a simplifier would compute."""
    weights = [numpy_helper.from_array(np.array(each), f"c{n}") for n, each in enumerate(inputs)]
    names = [weight.name for weight in weights]
    nodes = [
        helper.make_node(op, names, ["big"]),
        helper.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["s"], to=FLOAT),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    save(target, nodes, *weights)
    return ("optimize", "bad.onnx", "-o", "out.onnx", "--no-validate")


@attack(0)
def constant_that_fills_the_memory(target: Target) -> tuple[str, ...]:
    return _folded(target, "ConstantOfShape", [2**20, 2**12])


@attack(0)
def range_that_fills_the_memory(target: Target) -> tuple[str, ...]:
    return _folded(target, "Range", 0, 2**33, 1)


@attack(0)
def tile_that_fills_the_memory(target: Target) -> tuple[str, ...]:
    return _folded(target, "Tile", [1.0, 2.0], [2**32])


def constant_whose_size_no_shape_tells(target: Target) -> tuple[str, ...]:
    nodes = [
        helper.make_node("NonZero", ["ones"], ["row"]),
        helper.make_node("Transpose", ["row"], ["column"]),
        helper.make_node("Add", ["row", "column"], ["big"]),
        helper.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["s"], to=FLOAT),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    save(target, nodes, numpy_helper.from_array(np.ones(15_000, bool), "ones"))
    return ("validate", "bad.onnx", "bad.onnx", "--memory-limit", "700MB")


attack(2, "exceeds --memory-limit 700MB")(constant_whose_size_no_shape_tells)


def _fill_together(target: Target) -> None:
    """Each constant has 96 MB, all of them 4 GB, in a file of 4 kB."""
    shape = numpy_helper.from_array(np.array([6_000_000, 4]), "shape")
    nodes, last = [], "x"
    for number in range(40):
        filled = numpy_helper.from_array(np.array([number], np.float32))
        nodes.append(helper.make_node("ConstantOfShape", ["shape"], [f"big{number}"], value=filled))
        nodes.append(helper.make_node("Concat", [last, f"big{number}"], [f"all{number}"], axis=0))
        last = f"all{number}"
    nodes += [helper.make_node("ReduceSum", [last], ["s"]), helper.make_node("Add", ["x", "s"], ["y"])]
    save(target, nodes, shape)


@attack(6, "ran out of memory", "--limit child-memory=")
def constants_that_fill_the_memory_together(target: Target) -> tuple[str, ...]:
    _fill_together(target)
    return ("convert", "bad.onnx", "--to", "ort", "-o", "out.ort", "--no-validate", *_LITTLE)


@attack(0)
def constants_of_which_some_are_folded(target: Target) -> tuple[str, ...]:
    _fill_together(target)
    return ("optimize", "bad.onnx", "-o", "out.onnx", "--no-validate", *_LITTLE)


@attack(0)
def constant_of_open_size_that_a_simplifier_would_compute(target: Target) -> tuple[str, ...]:
    constant_whose_size_no_shape_tells(target)
    return ("optimize", "bad.onnx", "-o", "out.onnx", "--no-validate", *_LITTLE)


@attack(0)
def constant_of_open_size_that_onnxruntime_would_compute(target: Target) -> tuple[str, ...]:
    constant_whose_size_no_shape_tells(target)
    return ("convert", "bad.onnx", "--to", "ort", "-o", "out.ort", "--no-validate", *_LITTLE)


# ---- names


def _named(target: Target, name: str) -> tuple[str, ...]:
    save(target, [helper.make_node("Relu", ["x"], [name], name), helper.make_node("Neg", [name], ["y"])])
    path = target.folder / "bad.onnx"
    model = onnx.load(path)
    model.graph.input[0].name = model.graph.node[0].input[0] = name + "in"
    model.producer_name = name
    model.doc_string = name
    path.write_bytes(model.SerializeToString())
    return INSPECT


@attack(0)
def names_that_clear_the_terminal(target: Target) -> tuple[str, ...]:
    return _named(target, "\x1b[2J\x1b]0;title\x07\x9b31m")


@attack(0)
def names_that_turn_the_line_around(target: Target) -> tuple[str, ...]:
    return _named(target, "\u202egnp.exe\u2066\u200f")


@attack(0)
def names_with_lines_of_their_own(target: Target) -> tuple[str, ...]:
    return _named(target, "a\nexit 0\r\u2028b\x85c\x0bd")


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("names_")])
def test_names_are_escapes_in_json(name: str, target: Target) -> None:
    run = target.run(*CASES[name].prepare(target), "--json")
    assert json.loads(run.stdout)["producer"] == onnx.load(target.folder / "bad.onnx").producer_name
    assert all(line.isprintable() for line in run.stdout.split("\n"))


def test_names_give_no_commands_to_github(target: Target) -> None:
    target.environment["GITHUB_ACTIONS"] = "true"
    for extra in ((), ("--json",)):
        run = target.run(*_named(target, "\n::error file=x::forged\r\n##[command]rm"), *extra)
        assert not run.code
        assert "forged" in run.stdout
        for line in (run.stdout + run.stderr).splitlines():
            assert not line.lstrip().startswith("::")
            assert "##[" not in line


@pytest.mark.parametrize("name", CASES)
def test_model_attack_is_refused_or_harmless(name: str, target: Target) -> None:
    case = CASES[name]
    target.refuses(case.code, case.prepare(target), *case.says)


def test_opening_a_model_keeps_to_the_memory_limit(target: Target) -> None:
    """ONNX Runtime folds constants when it opens a file, before any run."""
    _folded(target, "ConstantOfShape", [2**9, 2**18])
    limit = MemoryLimit(700_000_000, "700MB")
    with (
        IsolatedRuntime(
            target.folder / "bad.onnx", RuntimeOptions().at_level("all"), limit=lambda: limit
        ) as runtime,
        pytest.raises(MemoryFullError, match=r"opening .* exceeds --memory-limit 700MB.*allow more"),
    ):
        assert runtime.inputs


def test_a_valid_model_passes(target: Target) -> None:
    """So that a refusal above is of the attack."""
    onnx.save(control_flow(), target.folder / "good.onnx")
    target.refuses(0, ("inspect", "good.onnx"))
    assert Path(target.folder / "good.onnx").exists()


@pytest.mark.exhaustive
def test_without_an_option_too_optimizing_keeps_to_a_limit(target: Target) -> None:
    _fill_together(target)
    run = target.running.run(
        target.folder, "convert", "bad.onnx", "--to", "ort", "-o", "out.ort", "--no-validate", timeout=60
    )
    assert run.code == 6
    assert "ONNX Runtime's optimizer took too much memory: it held 2" in run.stderr
    assert "--limit child-memory=" in run.stderr
