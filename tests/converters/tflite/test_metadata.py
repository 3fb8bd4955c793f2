"""TFLite metadata: labels and normalization, as other readers find them, and what does not fit the model."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import helper, numpy_helper

from onnxport.converters.app_metadata import parse_labels, parse_normalizations
from onnxport.converters.params import TfliteParams
from onnxport.converters.tflite.compiler import TfliteConverter
from onnxport.converters.tflite.metadata.labels import LabelFile, read_label_files
from onnxport.converters.tflite.metadata.writer import write_metadata
from onnxport.core.errors import InputError, OnnxportError, UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.manifest import Manifest, Port
from onnxport.formats.model import Model
from onnxport.formats.tflite.labels import read_labels
from onnxport.inspection import inspect_model
from onnxport.optimizers.canonical_form import prepare
from onnxport.reports.inspection import inspection_lines
from onnxport.runtimes.litert import TfliteRuntime
from tests.converters.tflite.models import model_of

MANIFEST = Manifest(source="", made_by={}, options={}, validation="skipped")
IMAGE = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
TABLE = schema.flatbuffers.table.Table


@pytest.fixture(scope="module")
def converter() -> Iterator[TfliteConverter]:
    with TfliteConverter() as running:
        yield running


def classifier() -> Model:
    """An image, and an unused-looking second input, to scores of 5 classes and 8 features."""
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["features"]),
        helper.make_node("Mul", ["features", "gain"], ["scaled"]),
        helper.make_node("Gemm", ["scaled", "g"], ["scores"]),
    ]
    random = np.random.default_rng(1)
    arrays = {"w": random.standard_normal((8, 3, 3, 3)), "g": random.standard_normal((8, 5))}
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    feeds = {"gain": np.ones((1, 1), np.float32), "image": IMAGE}
    return model_of(nodes, feeds, constants, outputs=["features", "scores"])


def convert(converter: TfliteConverter, output: Path, **options: Any) -> None:
    prepared = prepare(classifier(), shapes={}, native=converter.native_ops).model
    converter.convert(prepared, output, TfliteParams.model_validate(options), MANIFEST)


def table(parent: Any, place: int) -> Any:
    """The child table at field `place`, by the layout of flatbuffers alone; none of our code is used."""
    offset = parent.Offset(4 + 2 * place)
    return TABLE(parent.Bytes, parent.Indirect(parent.Pos + offset)) if offset else None


def items(parent: Any, place: int) -> list[Any]:
    offset = parent.Offset(4 + 2 * place)
    start = parent.Vector(offset) if offset else 0
    count = parent.VectorLen(offset) if offset else 0
    return [TABLE(parent.Bytes, parent.Indirect(start + 4 * i)) for i in range(count)]


def text(parent: Any, place: int) -> str:
    offset = parent.Offset(4 + 2 * place)
    return parent.String(parent.Pos + offset).decode() if offset else ""


def number(parent: Any, place: int) -> int:
    offset = parent.Offset(4 + 2 * place)
    return parent.Get(schema.flatbuffers.number_types.Int8Flags, parent.Pos + offset) if offset else 0


def floats(parent: Any, place: int) -> list[float]:
    offset = parent.Offset(4 + 2 * place)
    start, count = parent.Vector(offset), parent.VectorLen(offset)
    return [parent.Get(schema.flatbuffers.number_types.Float32Flags, start + 4 * i) for i in range(count)]


def subgraph(path: Path) -> tuple[list[Any], list[Any]]:
    """Metadata of the file's inputs and outputs."""
    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    (buffer,) = [entry.buffer for entry in model.metadata if entry.name == b"TFLITE_METADATA"]
    content = bytes(model.buffers[buffer].data)
    assert content[4:8] == b"M001"
    root = TABLE(content, int.from_bytes(content[:4], "little"))
    assert text(root, 7) == "1.0.0"
    (graph,) = items(root, 3)
    return items(graph, 2), items(graph, 3)


def test_labels_and_normalization_stand_where_readers_look_for_them(
    converter: TfliteConverter, tmp_path: Path
) -> None:
    (tmp_path / "labels.txt").write_text("ant\nbee\ncat\ndog\nelk\n")
    convert(
        converter,
        tmp_path / "net.tflite",
        labels=str(tmp_path / "labels.txt"),
        normalization="image=123.5,116.25,103.5/58,57,57.5",
    )
    inputs, outputs = subgraph(tmp_path / "net.tflite")
    assert [text(tensor, 0) for tensor in inputs] == ["gain", "image"]
    assert [text(tensor, 0) for tensor in outputs] == ["features", "scores"]
    assert not items(inputs[0], 4)
    (unit,) = items(inputs[1], 4)
    assert number(unit, 0) == 1, "NormalizationOptions"
    assert floats(table(unit, 1), 0) == [123.5, 116.25, 103.5]
    assert floats(table(unit, 1), 1) == [58, 57, 57.5]
    content = table(inputs[1], 3)
    assert number(content, 0) == 2, "ImageProperties"
    assert number(table(content, 1), 0) == 1, "RGB"
    assert not items(outputs[0], 6), "8 features are not 5 labels"
    (file,) = items(outputs[1], 6)
    assert (text(file, 0), number(file, 2)) == ("labels.txt", 2), "TENSOR_AXIS_LABELS"


def test_label_files_are_a_zip_archive_behind_a_model_that_runs(
    converter: TfliteConverter, tmp_path: Path
) -> None:
    for name, count in (("classes.txt", 5), ("values.txt", 3)):
        (tmp_path / name).write_text("".join(f"{name} {i}\n" for i in range(count)))
    files = [f"scores={tmp_path / 'classes.txt'}", f"features={tmp_path / 'values.txt'}"]
    convert(converter, tmp_path / "net.tflite", labels=files)
    first = (tmp_path / "net.tflite").read_bytes()
    with zipfile.ZipFile(tmp_path / "net.tflite") as archive:
        assert sorted(archive.namelist()) == ["classes.txt", "values.txt"]
        assert archive.read("classes.txt") == (tmp_path / "classes.txt").read_bytes()
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    (values,) = items(subgraph(tmp_path / "net.tflite")[1][0], 6)
    assert number(values, 2) == 3, "TENSOR_VALUE_LABELS: 3 labels are not 8 positions"
    with TfliteRuntime(tmp_path / "net.tflite") as runtime:
        answers = runtime.run({"gain": np.ones((1, 1), np.float32), "image": IMAGE})
    assert answers["scores"].shape == (1, 5)
    convert(converter, tmp_path / "net.tflite", labels=files)
    assert (tmp_path / "net.tflite").read_bytes() == first


def test_inspect_shows_the_labels_that_the_file_has(converter: TfliteConverter, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    for name, count in (("classes.txt", 5), ("values.txt", 12)):
        (tmp_path / name).write_text("".join(f"{name[:-4]} {i}\n" for i in range(count)))
    files = [f"scores={tmp_path / 'classes.txt'}", f"features={tmp_path / 'values.txt'}"]
    convert(converter, path, labels=files)
    lines = inspection_lines(inspect_model(path)).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  labels "))
    assert [line.strip().removeprefix("labels").strip() for line in lines[start : start + 2]] == [
        "features: 12 in values.txt: values 0, values 1, values 2, values 3, values 4, ...",
        "scores: 5 in classes.txt: classes 0, classes 1, classes 2, classes 3, classes 4",
    ]
    # The labels of the file count, not those that it was made with.
    path.write_bytes(path.read_bytes().replace(b"classes.txt", b"vanishd.txt", 1))
    found = {each.file: each.count for each in inspect_model(path).labels}
    assert found == {"values.txt": 12, "vanishd.txt": None}


def test_a_file_without_labels_shows_none(converter: TfliteConverter, tmp_path: Path) -> None:
    convert(converter, tmp_path / "net.tflite", normalization="image=1/2")
    found = inspect_model(tmp_path / "net.tflite")
    assert found.labels == ()
    assert "  labels " not in inspection_lines(found)


def test_damaged_metadata_are_no_labels(tmp_path: Path) -> None:
    """Offsets that lead out of the buffer, or to themselves."""
    ports = [Port("scores", "scores", "float32", (1, 5))]
    files = [LabelFile("scores", "five.txt", b"a\nb\n", 2)]
    metadata = write_metadata("net", [], ports, {}, files)
    for place in range(0, len(metadata), 4):
        for wrong in (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\0"):
            damaged = metadata[:place] + wrong + metadata[place + 4 :]
            assert all(each.labels is None for each in read_labels(tmp_path / "none.tflite", damaged))


def test_the_manifest_holds_no_path() -> None:
    params = TfliteParams.model_validate({"labels": "/home/somebody/labels.txt"})
    assert "/home" not in str(params.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"labels": "missing.txt"}, InputError, "missing.txt cannot be read"),
        ({"labels": "four.txt"}, UsageError, "4 labels, and no outputs have 4 positions"),
        ({"labels": "probs=five.txt"}, UsageError, "no output 'probs'; its outputs are 'features', 'scores'"),
        ({"labels": "binary.txt"}, InputError, "not UTF-8"),
        ({"labels": ["scores=five.txt", "features=other/five.txt"]}, UsageError, "the same name"),
        ({"normalization": "picture=1/2"}, UsageError, "no input 'picture'; its inputs are 'gain', 'image'"),
        ({"normalization": "image=1,2/3,4"}, UsageError, "2 channels"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(
    converter: TfliteConverter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    kind: type[OnnxportError],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "four.txt").write_text("a\nb\nc\nd\n")
    (tmp_path / "five.txt").write_text("a\nb\nc\nd\ne\n")
    (tmp_path / "other" / "five.txt").write_text("f\ng\n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(kind, match=said):
        convert(converter, tmp_path / "net.tflite", **options)


def test_the_only_output_takes_as_many_labels_as_it_has_positions(tmp_path: Path) -> None:
    (tmp_path / "three.txt").write_text("a\nb\nc\n")
    labels = {"": tmp_path / "three.txt"}
    with pytest.raises(UsageError, match="3 labels, and no outputs have 3 positions"):
        read_label_files([TensorSpec("scores", "float32", ("N", 5))], labels)
    for spec in (TensorSpec("classes", "int64", ("N", 1)), TensorSpec("boxes", "float32", ("N", None, 6))):
        assert [file.output for file in read_label_files([spec], labels)] == [spec.name]


@pytest.mark.parametrize(
    "given", ["image=1", "image=1/2/3", "image=a/1", "image=1/0", "image=nan/1", "image=/1", "1/2"]
)
def test_a_normalization_of_another_form_is_refused(given: str) -> None:
    with pytest.raises(UsageError):
        parse_normalizations(given)


def test_labels_and_normalizations_are_read_from_texts_and_mappings() -> None:
    assert parse_labels("a.txt") == {"": Path("a.txt")}
    assert parse_labels(["x:0=a.txt", "b.txt"]) == {"x:0": Path("a.txt"), "": Path("b.txt")}
    assert parse_normalizations({"x": (127.5, 127.5)}) == {"x": ((127.5,), (127.5,))}
    assert parse_normalizations(["x=1,2/3"]) == {"x": ((1.0, 2.0), (3.0,))}
    with pytest.raises(UsageError, match="two label files have no output"):
        parse_labels(["a.txt", "b.txt"])
