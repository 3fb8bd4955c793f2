"""Models made to read other files, to grow without end, or to speak for the program."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import flatbuffers
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto, helper, numpy_helper

from onnxport.formats import ort_file
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


def _without_text(target: Target, name: bytes) -> tuple[str, ...]:
    """The saved model with bytes that are no UTF-8 for a name."""
    file = target.folder / "bad.onnx"
    assert name in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(name, b"\xff\x80" + name[2:]))
    return INSPECT


@attack(4, "names that are not UTF-8")
def operator_that_is_no_text(target: Target) -> tuple[str, ...]:
    save(target, [helper.make_node("Relu", ["x"], ["y"], domain="own")])
    return _without_text(target, b"Relu")


@attack(4, "names that are not UTF-8")
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
    save(target, nodes, numpy_helper.from_array(np.ones(20_000, bool), "ones"))
    return ("validate", "bad.onnx", "bad.onnx", "--memory-limit", "700MB")


attack(2, "exceeds --memory-limit 700MB")(constant_whose_size_no_shape_tells)


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


# ---- .ort


def _ort(target: Target, data: bytes) -> tuple[str, ...]:
    (target.folder / "bad.ort").write_bytes(data)
    return ("inspect", "bad.ort")


@attack(4, "bad.ort cannot be read", "more than its bytes hold")
def tables_that_share_their_targets(target: Target) -> tuple[str, ...]:
    """A graph of nodes of attributes of graphs, of which each list names one target a hundred times."""
    return _ort(target, bytes(_Bomb(100, 8).data))


class _Bomb:
    """An `.ort` file of few bytes that describes `width ** (3 * depth)` attributes."""

    def __init__(self, width: int, depth: int) -> None:
        self.data = bytearray(4) + b"ORTM"
        self.width = width
        session = self._table({1: None})
        struct.pack_into("<I", self.data, 0, session)
        model = self._table({7: None})
        self._point(session, 1, model)
        graph = self._graph(depth)
        self._point(model, 7, graph)

    def _graph(self, depth: int) -> int:
        """A graph whose list of nodes names one node often, whose attributes are one, which holds such a graph."""
        if not depth:
            return self._table({})
        graph = self._table({2: None})
        nodes = self._vector(graph, 2)
        node = self._table({10: None})
        self._fill(nodes, node)
        attributes = self._vector(node, 10)
        attribute = self._table({2: 5, 7: None})
        self._fill(attributes, attribute)
        self._point(attribute, 7, self._graph(depth - 1))
        return graph

    def _table(self, fields: dict[int, int | None]) -> int:
        count = max(fields, default=-1) + 1
        vtable = len(self.data)
        offsets = {slot: 4 + 4 * place for place, slot in enumerate(fields)}
        self.data += struct.pack(
            f"<{2 + count}H", 4 + 2 * count, 4 + 4 * len(fields), *(offsets.get(n, 0) for n in range(count))
        )
        self.data += bytes(-len(self.data) % 4)
        position = len(self.data)
        self.data += struct.pack("<i", position - vtable)
        self.data += b"".join(struct.pack("<I", each or 0) for each in fields.values())
        return position

    def _vector(self, table: int, slot: int) -> int:
        """Append a list for a field; references lead forward, so that its target comes later."""
        position = len(self.data)
        self.data += struct.pack("<I", self.width) + bytes(4 * self.width)
        self._point(table, slot, position)
        return position

    def _fill(self, vector: int, target: int) -> None:
        for at in range(vector + 4, vector + 4 + 4 * self.width, 4):
            struct.pack_into("<I", self.data, at, target - at)

    def _point(self, table: int, slot: int, target: int) -> None:
        vtable = table - struct.unpack_from("<i", self.data, table)[0]
        at = table + struct.unpack_from("<H", self.data, vtable + 4 + 2 * slot)[0]
        struct.pack_into("<I", self.data, at, target - at)


@attack(4, "bad.ort cannot be read", "more than its bytes hold")
def strings_that_share_their_bytes(target: Target) -> tuple[str, ...]:
    name = b"n" * 500_000
    graph = {"inputs": [name] * 100_000}
    return _ort(target, bytes(ort_file.write({"ort_version": b"1", "model": {"graph": graph}})))


@attack(4, "bad.ort cannot be read")
def operator_whose_name_is_no_text(target: Target) -> tuple[str, ...]:
    import onnxruntime

    save(target, [helper.make_node("Relu", ["x"], ["y"])])
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(target.folder / "bad.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(target.folder / "bad.onnx"), options)
    return _ort(target, (target.folder / "bad.ort").read_bytes().replace(b"Relu", b"R\x80lu"))


@attack(4, "bad.ort cannot be read")
def list_of_four_billion(target: Target) -> tuple[str, ...]:
    data = bytearray(ort_file.write({"ort_version": b"1", "model": {"graph": {"inputs": [b"a", b"b"]}}}))
    at = data.index(struct.pack("<I", 2), 8)
    data[at : at + 4] = b"\xff\xff\xff\xff"
    return _ort(target, bytes(data))


# ---- .tflite


def _tflite(target: Target, build: Callable[[schema.ModelT], None]) -> tuple[str, ...]:
    """A file with one RELU, changed by `build`."""
    model = schema.ModelT()
    model.version = 3
    model.buffers = [schema.BufferT()]
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.RELU
    code.version = 1
    model.operatorCodes = [code]
    model.subgraphs = [_subgraph()]
    build(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    (target.folder / "bad.tflite").write_bytes(bytes(builder.Output()))
    return ("inspect", "bad.tflite")


def _subgraph() -> schema.SubGraphT:
    graph = schema.SubGraphT()
    graph.tensors = []
    for name in (b"x", b"y"):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, np.array([1, 4], np.int32), 0
        graph.tensors.append(tensor)
    graph.inputs, graph.outputs = np.array([0], np.int32), np.array([1], np.int32)
    operator = schema.OperatorT()
    operator.inputs, operator.outputs = np.array([0], np.int32), np.array([1], np.int32)
    graph.operators = [operator]
    return graph


@attack(4, "bad.tflite is truncated or damaged")
def operand_that_does_not_exist(target: Target) -> tuple[str, ...]:
    def build(model: schema.ModelT) -> None:
        model.subgraphs[0].operators[0].inputs = np.array([7], np.int32)

    return _tflite(target, build)


def _while(body: int) -> schema.OperatorT:
    operator = schema.OperatorT()
    operator.opcodeIndex = 0
    operator.inputs, operator.outputs = np.array([0], np.int32), np.array([1], np.int32)
    operator.builtinOptionsType = schema.BuiltinOptions.WhileOptions
    operator.builtinOptions = schema.WhileOptionsT()
    operator.builtinOptions.condSubgraphIndex = operator.builtinOptions.bodySubgraphIndex = body
    return operator


@attack(4, "bad.tflite is truncated or damaged", "a loop's body is itself")
def loop_whose_body_is_itself(target: Target) -> tuple[str, ...]:
    def build(model: schema.ModelT) -> None:
        model.subgraphs[0].operators = [_while(0)]

    return _tflite(target, build)


@attack(4, "bad.tflite is truncated or damaged", "more than its bytes hold")
def loops_that_double_thirty_times(target: Target) -> tuple[str, ...]:
    """Each body is named twice by the one before: a walk through all would not end."""

    def build(model: schema.ModelT) -> None:
        model.subgraphs = [_subgraph() for _ in range(31)]
        for number, graph in enumerate(model.subgraphs[:-1]):
            graph.operators = [_while(number + 1), _while(number + 1)]

    return _tflite(target, build)


@attack(4, "bad.tflite is truncated or damaged", "more than its bytes hold")
def tensors_that_share_one_long_name(target: Target) -> tuple[str, ...]:
    builder = flatbuffers.Builder(1024)
    name = builder.CreateString("n" * 1_000_000)
    schema.TensorStart(builder)
    schema.TensorAddName(builder, name)
    tensor = schema.TensorEnd(builder)
    count = 100_000
    schema.SubGraphStartTensorsVector(builder, count)
    for _ in range(count):
        builder.PrependUOffsetTRelative(tensor)
    tensors = builder.EndVector()
    schema.SubGraphStart(builder)
    schema.SubGraphAddTensors(builder, tensors)
    graph = schema.SubGraphEnd(builder)
    schema.ModelStartSubgraphsVector(builder, 1)
    builder.PrependUOffsetTRelative(graph)
    graphs = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddVersion(builder, 3)
    schema.ModelAddSubgraphs(builder, graphs)
    builder.Finish(schema.ModelEnd(builder), b"TFL3")
    (target.folder / "bad.tflite").write_bytes(bytes(builder.Output()))
    return ("inspect", "bad.tflite")


# ---- .mlpackage


def _package(target: Target, change: Callable[[object, object], None]) -> tuple[str, ...]:
    """A package with a program of one constant, changed by `change(model, block)`."""
    from onnxport.formats.mlpackage.files import messages

    folder = target.folder / "bad.mlpackage"
    root = folder / "Data" / "com.apple.CoreML"
    (root / "weights").mkdir(parents=True)
    (root / "weights" / "weight.bin").write_bytes(bytes(128))
    item = {"author": "com.apple.CoreML", "name": "model.mlmodel", "path": "com.apple.CoreML/model.mlmodel"}
    manifest = {"fileFormatVersion": "1.0.0", "itemInfoEntries": {"a": item}, "rootModelIdentifier": "a"}
    (folder / "Manifest.json").write_text(json.dumps(manifest))
    model = messages("Model").Model(specificationVersion=7)
    function = model.mlProgram.functions["main"]
    function.opset = "CoreML6"
    block = function.block_specializations["CoreML6"]
    change(model, block)
    (root / "model.mlmodel").write_bytes(model.SerializeToString())
    return ("inspect", "bad.mlpackage")


def _constant(block: object, name: str, size: int, dtype: str = "FLOAT32") -> object:
    from onnxport.formats.mlpackage.files import messages

    operation = block.operations.add(type="const")
    kind = messages("MIL").DataType.Value(dtype)
    output = operation.outputs.add(name=name)
    val = operation.attributes["val"]
    for type_ in (output.type, val.type):
        type_.tensorType.dataType = kind
        type_.tensorType.rank = 1
        type_.tensorType.dimensions.add().constant.size = size
    return val


@attack(0)
def constants_of_one_number_for_all(target: Target) -> tuple[str, ...]:
    """Four bytes that stand for four megabytes, a thousand times."""

    def change(model: object, block: object) -> None:
        for number in range(1000):
            _constant(block, f"c{number}", 1 << 20).immediateValue.tensor.floats.values.append(1.0)

    return _package(target, change)


@attack(4, "bad.mlpackage is damaged", "more than its bytes hold")
def package_weights_that_share_one_megabyte(target: Target) -> tuple[str, ...]:
    """Packed numbers take eight times their bytes in memory, here for each of 4000 constants."""

    def change(model: object, block: object) -> None:
        weights = target.folder / "bad.mlpackage" / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
        size = 1_000_000
        weights.write_bytes(
            struct.pack("<IIQQQ", 0xDEADBEEF, 0, size, 128, 0).ljust(128, b"\0") + bytes(size)
        )
        for number in range(4000):
            val = _constant(block, f"c{number}", 8 * size, "UINT1")
            val.blobFileValue.fileName = "@model_path/weights/weight.bin"

    return _package(target, change)


@attack(4, "bad.mlpackage is damaged", "'../../../secret.bin'")
def package_weights_above_the_folder(target: Target) -> tuple[str, ...]:
    def change(model: object, block: object) -> None:
        blob = _constant(block, "c", 4).blobFileValue
        blob.fileName, blob.offset = "@model_path/../../../secret.bin", 64

    return _package(target, change)


@attack(4, "bad.mlpackage is damaged", "holds no weights")
def package_weights_without_a_header(target: Target) -> tuple[str, ...]:
    def change(model: object, block: object) -> None:
        blob = _constant(block, "c", 4).blobFileValue
        blob.fileName, blob.offset = "@model_path/weights/weight.bin", 64

    return _package(target, change)


@attack(4, "bad.mlpackage")
def package_that_is_a_circle_of_links(target: Target) -> tuple[str, ...]:
    arguments = _package(target, lambda model, block: None)
    file = target.folder / "bad.mlpackage" / "Data" / "com.apple.CoreML" / "model.mlmodel"
    file.unlink()
    file.symlink_to(file.name)
    return arguments


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
