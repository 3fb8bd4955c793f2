"""The list of operators for a reduced build of ONNX Runtime."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from onnxruntime.tools.reduced_build_config_parser import parse_config

from onnxport.converters.required_operators import Use, find_uses, parse_list, write_list
from onnxport.formats import ort_file
from tests.converters.test_ort import DIGITS, converted

# A subgraph, a place with two tracked types, an operator without any, and a float64 that one place alone has.
MANY = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, int64[2] i, bool c) => (double[2] y, float[4] z) {
  picked = Gather(x, i)
  y = Cast<to = 11>(picked)
  z = If(c) <then_branch = t () => (float[4] a) { a = Neg(x) },
             else_branch = e () => (float[4] b) { b = Where(c, x, x) }>
}"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models of one app; the first has convolutions."""
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    return converted(DIGITS, folders[0]), converted(onnx.parser.parse_model(MANY), folders[1], "disable")


def nodes(path: Path) -> list[Use]:
    return list(find_uses(ort_file.read(path.read_bytes())))


def test_nodes_have_the_types_that_onnx_infers(files: tuple[Path, Path]) -> None:
    found = {node.operator: (node.version, node.inputs, node.outputs) for node in nodes(files[1])}
    assert found == {
        "Gather": (13, ("float", "int64_t"), ("float",)),
        "Cast": (13, ("float",), ("double",)),
        "If": (16, ("bool",), ("float",)),
        "Neg": (13, ("float",), ("float",)),
        "Where": (16, ("bool", "float", "float"), ("float",)),
    }


def test_a_list_lacks_nothing_of_the_models_it_was_written_for(files: tuple[Path, Path]) -> None:
    listed = parse_list(write_list(files))
    assert [listed.lacks(nodes(path)) for path in files] == [(), ()]


def test_our_reading_of_a_list_is_that_of_onnx_runtime_s_build(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    config = tmp_path / "app.config"
    config.write_text(write_list(files))
    operators, types = parse_config(str(config), enable_type_reduction=True)
    found = {
        (domain, opset, name)
        for domain, opsets in operators.items()
        for opset, all_ in opsets.items()
        for name in all_
    }
    assert parse_list(config.read_text()).operators == found
    allowed = {
        (operator, side.lower() + "s", int(index)): set(kept.split(", "))
        for line in types.get_cpp_entries()
        for operator, side, index, kept in re.findall(r"Domain, (\w+), (\w+), (\d+), (.*)\);", line)
    }
    ours = {
        (operator, *place): kept
        for (_, operator), places in parse_list(config.read_text()).types.items()
        for place, kept in places.items()
    }
    assert ours == allowed
    assert ours["Cast", "outputs", 0] == {"double"}


@pytest.mark.parametrize(
    ("before", "after", "lacking"),
    [
        ("Gather", "Gemm", "Gather 13"),
        ("Neg", "Sin", "Neg 13"),  # in a subgraph
        (";16;", ";11;", "If 16"),
        ('"1": ["int64_t"]', '"1": ["int32_t"]', "Gather 13 of int64_t (input 1)"),
        ('"outputs": {"0": ["double"]}', '"outputs": {"0": ["float"]}', "Cast 13 of double (output 0)"),
    ],
)
def test_what_is_missing_in_a_list_is_named(
    before: str, after: str, lacking: str, files: tuple[Path, Path]
) -> None:
    text = write_list(files[1:])
    assert before in text
    assert lacking in parse_list(text.replace(before, after)).lacks(nodes(files[1]))


def test_optional_inputs_that_are_left_out_have_no_type(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, float m) => (float[4] y) { y = Clip(x, "", m) }'
    )
    path = converted(model, tmp_path, "disable")
    assert [node.inputs for node in nodes(path)] == [("float", "", "float")]
    assert parse_list(write_list([path])).lacks(nodes(path)) == ()
