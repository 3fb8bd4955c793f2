"""Artefacts made to read other files or to grow without end: `.ort`, `.tflite`, `.mlpackage`."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import flatbuffers
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import helper

from onnxport.formats import ort_file
from onnxport.formats.manifest import KEY, Manifest
from tests.hostile.attacking import Case, Target, registering
from tests.hostile.test_model_attacks import save

CASES: dict[str, Case] = {}
attack = registering(CASES)


# ---- our notes


@attack(0)
def manifest_of_many_levels(target: Target) -> tuple[str, ...]:
    save(target, [helper.make_node("Relu", ["x"], ["y"])])
    model = onnx.load(target.folder / "bad.onnx")
    manifest = Manifest("0" * 64, {}, {"deep": "here"}, "skipped").to_json()
    deep = manifest.replace('"here"', "[" * 600 + "]" * 600)
    helper.set_model_props(model, {KEY: deep})
    onnx.save(model, target.folder / "bad.onnx")
    return ("inspect", "bad.onnx", "--json")


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


@attack(4, "bad.mlpackage is damaged", "Manifest.json does not say where the model is")
def a_package_whose_items_are_a_text(target: Target) -> tuple[str, ...]:
    """A text takes numbers as its index, but none so large."""
    command = _package(target, lambda model, block: None)
    manifest = {"itemInfoEntries": "a", "rootModelIdentifier": 2**64 - 1}
    (target.folder / "bad.mlpackage" / "Manifest.json").write_text(json.dumps(manifest))
    return command


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


@attack(4, "bad.mlpackage is damaged", "its program has no function")
def package_without_a_function(target: Target) -> tuple[str, ...]:
    return _package(target, lambda model, block: model.mlProgram.functions.clear())


@attack(4, "bad.mlpackage")
def package_that_is_a_circle_of_links(target: Target) -> tuple[str, ...]:
    arguments = _package(target, lambda model, block: None)
    file = target.folder / "bad.mlpackage" / "Data" / "com.apple.CoreML" / "model.mlmodel"
    file.unlink()
    file.symlink_to(file.name)
    return arguments


@pytest.mark.parametrize("name", CASES)
def test_artefact_attack_is_refused_or_harmless(name: str, target: Target) -> None:
    case = CASES[name]
    target.refuses(case.code, case.prepare(target), *case.says)
