"""What is wrong with the two sides, the paths and the options that `validate` and `debug` are given."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fixtures import graphs
from tests.cli.failing import Case, assert_fails, error_of, registering
from tests.cli.sandbox import Sandbox

VALIDATE = ("validate", "model.onnx", "model.onnx")
DEBUG = ("debug", "model.onnx", "model.onnx")
# What a terminal would obey: red, a line that looks like ours, text from right to left.
EVIL = "\x1b[31m\nexit 0\n\u202e"
NOT_UTF8 = os.fsdecode(b"m\xff")

CASES: dict[str, Case] = {}
case = registering(CASES)


def one_node(
    x: str, y: str, sizes: tuple[int | str, ...] = (1, 4), dtype: int = TensorProto.FLOAT
) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, dtype, sizes) for name in (x, y)]
    graph = helper.make_graph([helper.make_node("Neg", [x], [y], "only")], "one", ends[:1], ends[1:])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def two_sides(sandbox: Sandbox, ours: onnx.ModelProto, theirs: onnx.ModelProto) -> tuple[str, ...]:
    onnx.save(ours, sandbox.folder / "a.onnx")
    onnx.save(theirs, sandbox.folder / "b.onnx")
    return ("validate", "a.onnx", "b.onnx")


def array_in(sandbox: Sandbox, name: str) -> Path:
    """A good sample in a folder of samples."""
    folder = sandbox.folder / "samples"
    folder.mkdir()
    np.savez(folder / name, image=np.ones((1, 1, 8, 8), np.float32))
    return folder / name


# ---- the two sides


@case(2, "x: float32[1, 4]  xx: float32[1, 4]", "likely 'x' is 'xx', 'y' is 'yy'", "--map x=xx --map y=yy")
def other_names(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return two_sides(sandbox, one_node("x", "y"), one_node("xx", "yy"))


@case(2, "x: float32[1, 4]  x: float64[1, 4]")
def other_dtypes(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return two_sides(sandbox, one_node("x", "y"), one_node("x", "y", dtype=TensorProto.DOUBLE))


@case(2, "x: float32[1, 4]  x: float32[1, 2, 2]")
def other_ranks(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return two_sides(sandbox, one_node("x", "y"), one_node("x", "y", (1, 2, 2)))


@case(2, "--map names the input 'nope', which model.onnx does not have; it has 'image'")
def map_to_an_unknown_name(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*VALIDATE, "--map", "image=nope")


@case(2, "\\x1b[31m exit 0", ": float32[1, 4]  q: float32[1, 4]")
def names_that_a_terminal_obeys(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return two_sides(sandbox, one_node("x" + EVIL, "y"), one_node("q", "y"))


@case(2, "\\x1b[31m exit 0 \\u202e, 4]")
def sizes_that_a_terminal_obeys(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return two_sides(sandbox, one_node("x", "y", ("N" + EVIL, 4)), one_node("q", "y"))


# ---- paths


@case(4, "m\\udcff.onnx has a path that is not UTF-8", "rename it")
def path_that_is_no_text(sandbox: Sandbox) -> tuple[str | Path, ...]:
    shutil.copy(sandbox.model, sandbox.folder / f"{NOT_UTF8}.onnx")
    return ("convert", f"{NOT_UTF8}.onnx", "--to", "ort")


@case(4, "m\\udcff.tflite has a path that is not UTF-8")
def candidate_whose_path_is_no_text(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / f"{NOT_UTF8}.tflite").write_bytes(b"anything")
    return ("validate", "model.onnx", f"{NOT_UTF8}.tflite")


@case(2, "m\\udcff.ort cannot be written: its path is not UTF-8")
def output_whose_path_is_no_text(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", "--to", "ort", "-o", f"{NOT_UTF8}.ort")


@case(4, "pipe.onnx is not a regular file")
def model_that_is_a_pipe(sandbox: Sandbox) -> tuple[str | Path, ...]:
    os.mkfifo(sandbox.folder / "pipe.onnx")
    return ("validate", "pipe.onnx", "model.onnx")


@case(4, "\\x1b[31m.onnx does not exist")
def path_that_a_terminal_obeys(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("validate", "\x1b[31m.onnx", "model.onnx")


# ---- what is written


@case(2, "--report names one file twice")
def one_report_under_two_spellings(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "sub").mkdir()
    return (*VALIDATE, "--report", "r.html", "--report", "sub/../r.html")


@case(2, "--report-tensors samples/a.npz lies in the folder of inputs", "another folder")
def tensors_onto_an_input(sandbox: Sandbox) -> tuple[str | Path, ...]:
    array_in(sandbox, "a.npz")
    return (*VALIDATE, "--inputs", "samples", "--report-tensors", "samples/a.npz")


@case(2, "the folder nowhere for the output does not exist")
def tensors_in_a_missing_folder(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*VALIDATE, "--report-tensors", "nowhere/t.npz")


@case(2, "model.onnx is a file; give -o a folder")
def repro_onto_the_model(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*DEBUG, "-o", "model.onnx")


@case(2, ". contains other files")
def repro_onto_the_model_s_folder(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*DEBUG, "-o", ".")


@case(2, "repro contains other files", "new or empty")
def repro_onto_one_with_notes_of_the_user_s(sandbox: Sandbox) -> tuple[str | Path, ...]:
    folder = sandbox.folder / "repro"
    (folder / "inputs").mkdir(parents=True)
    for name in ("model.onnx", "answers.npz", "inputs/inputs.npz", "notes.txt"):
        (folder / name).write_text("precious")
    (folder / "README.md").write_text("# One node of model.onnx\n")
    return (*DEBUG, "-o", "repro")


@case(2, "repro contains other files")
def repro_onto_a_model_s_folder_of_the_same_file_names(sandbox: Sandbox) -> tuple[str | Path, ...]:
    folder = sandbox.folder / "repro"
    (folder / "inputs").mkdir(parents=True)
    for name in ("model.onnx", "answers.npz", "inputs/inputs.npz", "README.md"):
        (folder / name).write_text("precious")
    return (*DEBUG, "-o", "repro")


@case(2, "link is a link; give -o the folder itself")
def repro_onto_a_link(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "link").symlink_to("elsewhere")
    return (*DEBUG, "-o", "link")


@case(2, "the folder no for the output does not exist")
def repro_in_a_missing_folder(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*DEBUG, "-o", "no/repro")


@case(2, "-o and --report name one file")
def repro_and_report_at_one_place(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*DEBUG, "-o", "r.json", "--report", "r.json")


# ---- options


@case(2, "--timeout: 0.0 is not allowed; give more than 0, 1000000 at most")
def no_time(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*VALIDATE, "--timeout", "0")


@case(2, "--timeout: 1e+300 is not allowed; give more than 0, 1000000 at most")
def more_time_than_there_is(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*VALIDATE, "--timeout", "1e300")


# ---- the tests


@pytest.mark.parametrize("name", CASES)
def test_bad_side_is_said_and_leaves_nothing(name: str, sandbox: Sandbox) -> None:
    assert_fails(CASES[name], sandbox)


def test_repro_replaces_an_earlier_one(sandbox: Sandbox) -> None:
    model = onnx.load(sandbox.model)
    bias = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 1)
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(model, sandbox.folder / "wrong.onnx")
    for _ in range(2):
        assert sandbox.run("debug", "model.onnx", "wrong.onnx", "-o", "repro").code == 1
        assert (sandbox.folder / "repro" / "inputs" / "inputs.npz").exists()


def test_files_that_are_named_like_libraries_are_not_taken_for_them(sandbox: Sandbox) -> None:
    for name in ("numpy", "onnxruntime", "json"):
        (sandbox.folder / f"{name}.py").write_text("raise SystemExit('a file of the user ran')")
    outcome = sandbox.run(*VALIDATE)
    assert outcome.code == 0, outcome.stderr


def test_sample_whose_name_is_no_text_is_reported_in_every_form(sandbox: Sandbox) -> None:
    array_in(sandbox, f"{NOT_UTF8}.npz")
    reports = [
        word for suffix in ("html", "json", "md", "sarif", "xml") for word in ("--report", f"r.{suffix}")
    ]
    outcome = sandbox.run(*VALIDATE, "--inputs", "samples", "--json", *reports)
    assert outcome.code == 0, outcome.stderr
    (fed,) = outcome.document["artifacts"][0]["report"]["fed"]
    assert fed["label"] == "m\\udcff.npz"


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_closed_stream_changes_no_exit_code(closed: int, sandbox: Sandbox) -> None:
    before = sandbox.contents()
    outcome = sandbox.run(*VALIDATE, before_exec=lambda: os.close(closed))
    assert outcome.code == 0, outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert sandbox.contents() == before


def test_outputs_of_one_name_are_one_output(sandbox: Sandbox) -> None:
    model = one_node("x", "y")
    model.graph.output.append(model.graph.output[0])
    outcome = sandbox.run(*two_sides(sandbox, model, model))
    assert outcome.code == 0, outcome.stderr


def test_unsupported_operator_cannot_forge_a_line(sandbox: Sandbox) -> None:
    model = graphs.two_unsupported()
    model.graph.node[0].name += EVIL
    onnx.save(model, sandbox.folder / "evil.onnx")
    outcome = sandbox.run("convert", "evil.onnx", "--to", "tflite")
    assert outcome.code == 3
    assert "\x1b" not in outcome.stderr
    assert "\nexit 0" not in error_of(outcome)
