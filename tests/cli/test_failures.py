"""Every documented way to fail: the sentence, the exit code, and nothing left behind.

Each runs the real command in a fresh process and compares all files, temporary ones included, before and after.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from fixtures import graphs
from onnxport.core import errors
from tests.cli.failing import Case, assert_fails, error_of, registering
from tests.cli.sandbox import ROOT, Sandbox, unprivileged

TFLITE = ("--to", "tflite")
ORT = ("--to", "ort")


CASES: dict[str, Case] = {}


case = registering(CASES)


def file_size_limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


# ---- 4: the input


@case(4, "text.onnx is not an ONNX model")
def not_a_protobuf(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "text.onnx").write_text("a letter, no model\n" * 20)
    return ("convert", "text.onnx", *TFLITE)


@case(4, "short.onnx is not an ONNX model", "truncated")
def truncated(sandbox: Sandbox) -> tuple[str | Path, ...]:
    data = sandbox.model.read_bytes()
    (sandbox.folder / "short.onnx").write_bytes(data[: len(data) // 2])
    return ("convert", "short.onnx", *ORT)


@case(4, "void.onnx is empty")
def empty(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "void.onnx").touch()
    return ("convert", "void.onnx", *TFLITE)


@case(4, "folder.onnx is a directory", "give a model file")
def directory(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "folder.onnx").mkdir()
    return ("convert", "folder.onnx", *TFLITE)


@case(4, "nowhere.onnx does not exist")
def missing(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "nowhere.onnx", *TFLITE)


@case(4, "secret.onnx cannot be read", "Permission denied", before_exec=unprivileged)
def no_permission_to_read(sandbox: Sandbox) -> tuple[str | Path, ...]:
    secret = sandbox.folder / "secret.onnx"
    shutil.copy(sandbox.model, secret)
    secret.chmod(0)
    return ("convert", "secret.onnx", *TFLITE)


@case(4, "model.pb", "known are .onnx, .tflite, .mlpackage, .ort")
def unknown_extension(sandbox: Sandbox) -> tuple[str | Path, ...]:
    shutil.copy(sandbox.model, sandbox.folder / "model.pb")
    return ("convert", "model.pb", *TFLITE)


@case(4, "bad.onnx is not a valid ONNX model", "the ONNX checker says")
def checker_rejects(sandbox: Sandbox) -> tuple[str | Path, ...]:
    onnx.save(graphs.checker_rejects(), sandbox.folder / "bad.onnx")
    return ("convert", "bad.onnx", *ORT)


@case(4, "lies in 'model.onnx.data', which does not exist", "put the file into")
def external_data_missing(sandbox: Sandbox) -> tuple[str | Path, ...]:
    folder = sandbox.folder / "external"
    folder.mkdir()
    graphs.external_data(folder)
    (folder / "model.onnx.data").unlink()
    return ("convert", "external/model.onnx", *TFLITE)


@case(4, "outside the model's folder")
def external_data_outside(sandbox: Sandbox) -> tuple[str | Path, ...]:
    folder = sandbox.folder / "external"
    folder.mkdir()
    graphs.external_data_outside(folder)
    return ("convert", "external/model.onnx", *TFLITE)


@case(4, "model.onnx.data cannot be read", "Permission denied", before_exec=unprivileged)
def no_permission_to_read_external_data(sandbox: Sandbox) -> tuple[str | Path, ...]:
    folder = sandbox.folder / "external"
    folder.mkdir()
    graphs.external_data(folder)
    (folder / "model.onnx.data").chmod(0)
    return ("convert", "external/model.onnx", *ORT)


@case(4, "model.tflite is in tflite format", "onnxport export makes one of a .tflite file")
def a_tflite_file_as_the_source(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "model.tflite").write_bytes(b"anything")
    return ("convert", "model.tflite", *ORT)


@case(4, "model.ort is in ort format", "give a .onnx file")
def source_of_another_format(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "model.ort").write_bytes(b"anything")
    return ("convert", "model.ort", *TFLITE)


@case(4, "broken.tflite")
def candidate_is_no_model(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "broken.tflite").write_bytes(b"\x18\0\0\0TFL3 and nothing more")
    return ("validate", "model.onnx", "broken.tflite")


@case(4, "broken.ort", "damaged")
def inspected_file_is_damaged(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "broken.ort").write_bytes(b"\xff\0\0\0ORTM")
    return ("inspect", "broken.ort")


@case(4, "samples", "does not exist")
def inputs_missing(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "--inputs", "samples")


# ---- 2: usage


@case(2, "No such command 'convrt'; did you mean 'convert'?")
def misspelt_command(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convrt", "model.onnx", *ORT)


@case(2, "--fit: npu is not allowed; give 'gpu'")
def accelerator_that_does_not_exist(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *TFLITE, "--fit", "npu")


@case(2, "No such command 'transmogrify'")
def unknown_command(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("transmogrify", "model.onnx")


@case(2, "No such command 'help'; did you mean '--help'?")
def help_as_a_command(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("help",)


@case(2, "No such command 'help'; did you mean 'convert --help'?")
def help_as_a_command_before_another(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("help", "convert")


@case(2, "'--to'", "'tflite'", "onnxport convert --help")
def unknown_target(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", "--to", "savedmodel")


@case(2, "No such option '--sampels'; did you mean '--samples'?")
def unknown_option(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "--sampels", "3")


@case(2, "No such option '--runtime'; did you mean '--reference-runtime' or '--candidate-runtime'?")
def part_of_an_option(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("validate", "model.onnx", "model.onnx", "--runtime", "litert")


@case(2, "No such option '--precison'; did you mean '--precision'?")
def option_with_other_near_ones(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *TFLITE, "--precison", "int8")


@case(2, "converting to ort has no option 'layout'")
def option_of_another_target(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "--layout", "nhwc")


@case(2, "--samples: 0 is not allowed; give 1 to 1000")
def value_out_of_range(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "--samples", "0")


@case(2, "--seed: -1 is not allowed; give 0 or more")
def value_below_its_bound(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("validate", "model.onnx", "model.onnx", "--seed", "-1")


@case(2, "--samples: 1001 is not allowed; give 1 to 1000")
def more_samples_than_anybody_means(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "--samples", "1001")


@case(2, "--rtol: inf is not allowed; give a finite number")
def infinite_tolerance(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "--rtol", "inf")


@case(2, "--atol: nan is not allowed; give a finite number")
def tolerance_that_is_no_number(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "--atol", "nan")


@case(2, "--rtol: 10000000000.0 is not allowed; give 0 to 1")
def tolerance_that_lets_zeros_pass(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("validate", "model.onnx", "model.onnx", "--rtol", "1e10")


@case(2, "Missing option '--to'. Choose from: tflite, coreml, ort; see onnxport convert --help")
def no_target(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx")


@case(2, "'MODEL...': the path is empty")
def empty_model_path(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "", *ORT)


@case(2, "'-o' / '--output': the path is empty")
def empty_output_path(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "-o", "")


@case(2, "model.onnx/model.ort cannot be written: model.onnx is a file, not a folder")
def output_below_a_file(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "-o", "model.onnx/model.ort")


@case(2, "model.onnx/a/b/model.ort cannot be written: model.onnx is a file, not a folder")
def output_deep_below_a_file(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "-o", "model.onnx/a/b/model.ort")


@case(2, "runs.json is a directory; give --report a file name")
def report_is_a_folder(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "runs.json").mkdir()
    return ("convert", "model.onnx", *ORT, "--report", "runs.json")


@case(2, "no input 'picture'", "its inputs are 'image'")
def shape_for_an_unknown_name(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *TFLITE, "--shape", "picture=1,1,8,8")


@case(
    2,
    "the shape 1,3,8,8 contradicts input image: float32[N, 1, 8, 8]",
    "the file fixes sizes, and --shape only fills open ones",
    "give each a name in the file: set its dim_param with the onnx package",
)
def shape_that_contradicts_the_model(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *TFLITE, "--shape", "image=1,3,8,8")


@case(2, "the shape 1,8,8 contradicts input image: float32[N, 1, 8, 8]", "give as many dimensions as it has")
def shape_of_another_rank(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *TFLITE, "--shape", "image=1,8,8")


@case(2, "no input 'picture'", "its inputs are 'image'")
def shape_for_an_unknown_name_of_a_validation(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("validate", "model.onnx", "model.onnx", "--shape", "picture=1,1,8,8")


@case(2, "'1x3' in the shape 'image=1x3' is not a dimension")
def shape_that_cannot_be_read(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *TFLITE, "--shape", "image=1x3")


@case(2, "does not exist", "mkdir -p")
def output_in_a_missing_folder(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "-o", "app/assets/model.ort")


@case(2, "model.onnx", "does not end in .tflite")
def output_is_the_input(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *TFLITE, "-o", "model.onnx")


@case(2, "alias.ort is the input")
def output_is_another_name_of_the_input(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "alias.ort").hardlink_to(sandbox.model)
    return ("convert", "model.onnx", *ORT, "-o", "alias.ort")


@case(2, "model.ort is a directory")
def output_is_a_folder(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "model.ort").mkdir()
    return ("convert", "model.onnx", *ORT)


@case(2, "report.docx", "known suffixes are .html, .json, .md, .sarif, .xml")
def report_in_an_unknown_form(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT, "--report", "report.docx")


@case(2, "--quiet and --verbose exclude each other")
def quiet_and_verbose(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("inspect", "model.onnx", "--quiet", "-v")


# ---- 3: no equivalent in the target


@case(3, "StringConcat", "'pre/join'", "RegexFullMatch", "'pre/match'")
def unsupported_operators_are_all_listed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    onnx.save(graphs.two_unsupported(), sandbox.folder / "strings.onnx")
    return ("convert", "strings.onnx", *TFLITE)


@case(3, "'head/first'", "'head/second'", "Embed", "Pool")
def foreign_operators_are_all_listed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    onnx.save(foreign_operators(), sandbox.folder / "foreign.onnx")
    return ("convert", "foreign.onnx", *ORT)


@case(3, "'head/first'", "'head/second'")
def operators_unknown_to_the_judge_too_are_listed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    onnx.save(foreign_operators(), sandbox.folder / "foreign.onnx")
    return ("convert", "foreign.onnx", *TFLITE)


def foreign_operators() -> onnx.ModelProto:
    """Two nodes of a domain that only its maker knows."""
    nodes = [
        helper.make_node("Embed", ["x"], ["e"], "head/first", domain="com.acme"),
        helper.make_node("Pool", ["e"], ["y"], "head/second", domain="com.acme"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    graph = helper.make_graph(nodes, "foreign", ends[:1], ends[1:])
    return helper.make_model(graph, ir_version=8, opset_imports=opsets)


# ---- 5: a library is missing


@case(5, "litert-converter", "not installed")
def compiler_not_installed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sandbox.patch(
        "import importlib.metadata as metadata\n"
        "found = metadata.version\n"
        "def version(name):\n"
        "    if name == 'litert-converter':\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "metadata.version = version\n"
    )
    return ("convert", "model.onnx", *TFLITE)


@case(5, "pydantic is not installed", "pip install pydantic")
def core_library_not_installed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sandbox.patch("import sys\nsys.modules['pydantic'] = None\n")
    return ("convert", "model.onnx", *TFLITE)


@case(5, "PyYAML is not installed", "pip install PyYAML")
def library_for_a_sidecar_not_installed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    folder = sandbox.folder / "samples"
    folder.mkdir()
    (folder / "a.png").touch()
    (folder / "preprocess.yaml").write_text("scale: 1")
    sandbox.patch("import sys\nsys.modules['yaml'] = None\n")
    return ("validate", "model.onnx", "model.onnx", "--inputs", "samples")


# ---- 6: the machine


@case(6, "model.ort cannot be written", "Permission denied", before_exec=unprivileged)
def no_permission_to_write(sandbox: Sandbox) -> tuple[str | Path, ...]:
    closed = sandbox.folder / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    return ("convert", "model.onnx", *ORT, "-o", "closed/model.ort")


@case(6, "model.ort cannot be written", "Permission denied", before_exec=unprivileged)
def no_permission_to_enter_the_output_s_folder(sandbox: Sandbox) -> tuple[str | Path, ...]:
    locked = sandbox.folder / "locked"
    locked.mkdir()
    locked.chmod(0o600)
    return ("convert", "model.onnx", *ORT, "-o", "locked/model.ort")


@case(6, "report.json cannot be written", before_exec=unprivileged)
def no_permission_to_write_the_report(sandbox: Sandbox) -> tuple[str | Path, ...]:
    closed = sandbox.folder / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    return ("convert", "model.onnx", *ORT, "--report", "closed/report.json")


@case(6, "model.tflite cannot be written", "file size limit", before_exec=file_size_limited)
def tflite_larger_than_the_file_size_limit(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *TFLITE)


@case(6, "model.ort cannot be written", before_exec=file_size_limited)
def ort_larger_than_the_file_size_limit(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *ORT)


@case(6, "out of memory")
def out_of_memory(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sandbox.patch(
        "import onnxport.converters.ort as ort\n"
        "def convert(*_):\n"
        "    raise MemoryError\n"
        "ort.convert = convert\n"
    )
    return ("convert", "model.onnx", *ORT)


# ---- 70: a bug of ours


@case(70, "a bug in onnxport, ZeroDivisionError: on purpose", "please report it")
def exception_of_our_own(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sandbox.patch(
        "import onnxport.converters.ort as ort\n"
        "def convert(model, output, *_):\n"
        "    output.write_bytes(b'half a file')\n"
        "    raise ZeroDivisionError('on purpose')\n"
        "ort.convert = convert\n"
    )
    return ("convert", "model.onnx", *ORT)


# ---- 1: not equivalent

# Doubles the first weights that the converter sees, so that it makes a wrong artefact of a right model.
WRONG_CONVERTER = """
import onnxport.converters.ort as ort
right = ort.convert
def convert(model, *rest):
    import numpy, onnx_ir
    wrong = model.clone()
    value = next(iter(wrong.graph.initializers.values()))
    value.const_value = onnx_ir.tensor(value.const_value.numpy() * numpy.float32(2), name=value.name)
    return right(wrong, *rest)
ort.convert = convert
"""


@case(1, "model.ort is not equivalent to model.onnx", "nothing was kept")
def wrong_artefact_is_not_let_out(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sandbox.patch(WRONG_CONVERTER)
    return ("convert", "model.onnx", *ORT)


@case(1, "other.onnx is not equivalent to model.onnx")
def models_that_differ(sandbox: Sandbox) -> tuple[str | Path, ...]:
    model = onnx.load(sandbox.model)
    bias = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 1)
    values = onnx.numpy_helper.to_array(bias) + 1
    bias.CopyFrom(onnx.numpy_helper.from_array(values, bias.name))
    onnx.save(model, sandbox.folder / "other.onnx")
    return ("validate", "model.onnx", "other.onnx")


@case(
    1,
    "whether still.ort is equivalent to still.onnx is inconclusive: 'y': it does not vary with the inputs; "
    "nothing was kept; give inputs of your own with --inputs DIR, or accept it unproven with --accept-inconclusive",
)
def output_that_never_varies(sandbox: Sandbox) -> tuple[str | Path, ...]:
    nodes = [helper.make_node("Mul", ["x", "zero"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])
    model = helper.make_model(helper.make_graph(nodes, "still", [x], [y], [zero]), ir_version=8)
    model.opset_import[0].version = 17
    onnx.save(model, sandbox.folder / "still.onnx")
    return ("convert", "still.onnx", *ORT)


# ---- the tests


@pytest.fixture(params=CASES)
def failing(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_failure_says_why_and_leaves_nothing(failing: Case, sandbox: Sandbox) -> None:
    assert_fails(failing, sandbox)


# The first of each exit code.
@pytest.mark.parametrize("name", {case.code: name for name, case in reversed(CASES.items())}.values())
def test_failure_is_one_document_with_json(name: str, sandbox: Sandbox) -> None:
    failing = CASES[name]
    outcome = sandbox.run(*failing.prepare(sandbox), "--json", before_exec=failing.before_exec)
    assert outcome.document["exit_code"] == outcome.code == failing.code
    if failing.code != errors.NOT_EQUIVALENT:  # whose document is the report
        for part in failing.says:
            assert part in outcome.document["error"]["message"]


def test_refusals_are_listed_one_per_line_in_json_too(sandbox: Sandbox) -> None:
    outcome = sandbox.run(*foreign_operators_arguments(sandbox), "--json")
    assert [(r["op"], r["node"]) for r in outcome.document["error"]["refusals"]] == [
        ("Embed", "head/first"),
        ("Pool", "head/second"),
    ]


def foreign_operators_arguments(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return CASES["foreign_operators_are_all_listed"].prepare(sandbox)


def test_verbose_shows_the_traceback_of_a_bug(sandbox: Sandbox) -> None:
    outcome = sandbox.run(*CASES["exception_of_our_own"].prepare(sandbox), "--verbose")
    assert outcome.code == errors.BUG
    assert "Traceback" in outcome.stderr
    assert "ZeroDivisionError: on purpose" in outcome.stderr
    assert outcome.stderr.endswith("exit 70\n")


def test_what_stood_at_the_output_before_a_failure_still_stands(sandbox: Sandbox) -> None:
    sandbox.patch(WRONG_CONVERTER)
    earlier = sandbox.folder / "model.ort"
    earlier.write_bytes(b"an artefact of yesterday")
    assert sandbox.run("convert", "model.onnx", *ORT).code == errors.NOT_EQUIVALENT
    assert earlier.read_bytes() == b"an artefact of yesterday"


def test_keep_rejected_keeps_it_under_a_name_that_says_so(sandbox: Sandbox) -> None:
    sandbox.patch(WRONG_CONVERTER)
    outcome = sandbox.run("convert", "model.onnx", *ORT, "--keep-rejected", "--json")
    assert outcome.code == errors.NOT_EQUIVALENT
    assert {path.name for path in sandbox.folder.iterdir()} == {
        "model.onnx",
        "model.rejected.ort",
        "model.rejected.required_operators.config",
    }
    (artifact,) = outcome.document["artifacts"]
    assert artifact["path"] == artifact["report"]["candidate"]["path"] == "model.rejected.ort"
    assert [companion["path"] for companion in artifact["companions"]] == [
        "model.rejected.required_operators.config"
    ]
    assert sandbox.run("validate", "model.onnx", "model.rejected.ort").code == errors.NOT_EQUIVALENT


@pytest.mark.parametrize("name", ["wrong_artefact_is_not_let_out", "output_that_never_varies"])
def test_failed_proof_is_one_line_and_a_table_of_the_outputs(name: str, sandbox: Sandbox) -> None:
    outcome = sandbox.run(*CASES[name].prepare(sandbox))
    line, _, question, head, *_ = outcome.stdout.splitlines()
    assert re.fullmatch(r"\w+\.ort   not kept   (inconclusive|not equivalent)   .*\d\.\d s", line)
    assert re.match(r"fidelity: (inconclusive|not equivalent)   ", question)
    assert head.split()[:2] == ["output", "verdict"]
    assert error_of(outcome).count("inconclusive:") == (name == "output_that_never_varies")


def test_every_documented_exit_code_is_reached_and_every_reached_one_documented() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    elsewhere = {errors.PROVEN, errors.INTERRUPTED}  # test_convert.py, test_interruption.py
    assert documented == {case.code for case in CASES.values()} | elsewhere


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("inspect", "absent.onnx"), errors.BAD_INPUT),
        (("inspect", "model.onnx", "--limit", "a=b"), errors.USAGE),
        (("optimize", "model.onnx", "-o", "out.onnx", "--no-validate"), errors.PROVEN),
    ],
)
def test_messages_on_a_full_disk_leave_the_exit_code(
    arguments: tuple[str, ...], code: int, sandbox: Sandbox
) -> None:
    """Python's own would be 1, which says "not equivalent"."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            sandbox.command(*arguments),
            cwd=sandbox.folder,
            env=sandbox.environment,
            stdout=subprocess.DEVNULL,
            stderr=full,
            check=False,
        )
    assert done.returncode == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_document_that_finds_no_room_is_told_on_stderr(sandbox: Sandbox) -> None:
    with Path("/dev/full").open("w") as full:
        command = sandbox.command("inspect", "model.onnx", "--json")
        done = subprocess.run(
            command,
            cwd=sandbox.folder,
            env=sandbox.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 6
    assert done.stderr.splitlines() == ["error: the machine failed: No space left on device", "exit 6"]
