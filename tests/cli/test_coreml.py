"""Core ML from the command line: packages made, judged, shown and replaced whole; and every way that fails."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxport.formats.mlpackage.files import messages
from tests.cli.failing import Case, assert_fails, registering
from tests.cli.sandbox import Sandbox, unprivileged

COREML = ("--to", "coreml")
PACKAGE = "model.mlpackage"
HIDDEN = (
    "import importlib.metadata as metadata\n"
    "found = metadata.version\n"
    "def version(name):\n"
    "    if name == 'coremltools':\n"
    "        raise metadata.PackageNotFoundError(name)\n"
    "    return found(name)\n"
    "metadata.version = version\n"
)

CASES: dict[str, Case] = {}
case = registering(CASES)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits model as a package, made by the command."""
    root = tmp_path_factory.mktemp("made")
    sandbox = Sandbox(root)
    outcome = sandbox.run("convert", "model.onnx", *COREML)
    assert outcome.code == 0, outcome.stderr
    return sandbox.folder / PACKAGE


_MADE: list[Path] = []


@pytest.fixture(autouse=True)
def _known(made: Path) -> Iterator[None]:
    """Lets the cases below, which are plain functions, find the package."""
    _MADE[:] = [made]
    yield
    _MADE.clear()


def package(sandbox: Sandbox, name: str = PACKAGE) -> Path:
    """A copy of the package in the sandbox."""
    return Path(shutil.copytree(_MADE[0], sandbox.folder / name))


# ---- what works


def test_a_package_is_made_judged_and_shown(sandbox: Sandbox, made: Path) -> None:
    shutil.copytree(made, sandbox.folder / "copy.mlpackage")
    judged = sandbox.run("validate", "model.onnx", "copy.mlpackage/", "--json")
    assert judged.code == 0
    report = judged.document["artifacts"][0]["report"]
    assert report["verdict"] == "proven"
    assert report["candidate"]["precision"] == "float32"
    assert report["candidate"]["runtime"] == "evaluator of ML programs, as Apple documents them"
    assert any("Core ML itself runs on macOS only" in note for note in report["notes"])
    shown = sandbox.run("inspect", "copy.mlpackage", "--json").document
    assert shown["format"] == "coreml"
    assert "Manifest.json" in shown["files"]
    assert shown["operators"]["conv"] >= 1
    assert shown["manifest"]["options"]["coreml"]["minimum_target"] == "iOS17"


@pytest.mark.parametrize("report", ["run.json", "run.html", "run.md", "run.sarif", "run.xml"])
def test_every_report_takes_a_folder(sandbox: Sandbox, made: Path, report: str) -> None:
    shutil.copytree(made, sandbox.folder / PACKAGE)
    outcome = sandbox.run("validate", "model.onnx", PACKAGE, "--report", report)
    assert outcome.code == 0, outcome.stderr
    text = (sandbox.folder / report).read_text()
    assert PACKAGE in text
    if report != "run.sarif":  # which has no word for what is all right
        assert "evaluat" in text, "a reader has to see that it was not run by Core ML"


def test_a_package_is_replaced_whole(sandbox: Sandbox) -> None:
    old = package(sandbox)
    (old / "stale.txt").write_text("of an older package")
    assert sandbox.run("convert", "model.onnx", *COREML, "-o", f"{PACKAGE}/").code == 0
    assert not (old / "stale.txt").exists()
    assert sorted(path.name for path in sandbox.folder.iterdir()) == ["model.mlpackage", "model.onnx"]


def test_an_empty_folder_of_the_right_name_is_taken(sandbox: Sandbox) -> None:
    (sandbox.folder / PACKAGE).mkdir()
    assert sandbox.run("convert", "model.onnx", *COREML).code == 0
    assert (sandbox.folder / PACKAGE / "Manifest.json").is_file()


def test_a_package_that_fails_the_proof_leaves_the_older_one_alone(sandbox: Sandbox) -> None:
    old = package(sandbox)
    (old / "mine.txt").write_text("kept")
    sandbox.patch(WRONG_CONVERTER)
    before = sandbox.contents()
    outcome = sandbox.run("convert", "model.onnx", *COREML)
    assert outcome.code == 1, outcome.stderr
    assert sandbox.contents() == before
    kept = sandbox.run("convert", "model.onnx", *COREML, "--keep-rejected")
    assert kept.code == 1
    assert (sandbox.folder / "model.rejected.mlpackage" / "Manifest.json").is_file()
    assert (old / "mine.txt").read_text() == "kept"


def test_a_wrong_second_function_lets_nothing_out(sandbox: Sandbox) -> None:
    shutil.copy(sandbox.folder / "model.onnx", sandbox.folder / "second.onnx")
    before = sandbox.contents()
    sandbox.patch(WRONG_CONVERTER.replace("if True", "if rest[-1] == 'second'"))
    several = ("--minimum-target", "iOS18", "--function", "second=second.onnx")
    outcome = sandbox.run("convert", "model.onnx", *COREML, *several)
    assert outcome.code == 1, outcome.stderr
    assert "model.mlpackage is not equivalent to second.onnx" in outcome.stderr
    assert sandbox.contents() == before


def test_what_is_so_of_all_functions_is_said_once(sandbox: Sandbox) -> None:
    shutil.copy(sandbox.folder / "model.onnx", sandbox.folder / "second.onnx")
    several = ("--minimum-target", "iOS18", "--function", "second=second.onnx")
    outcome = sandbox.run("convert", "model.onnx", *COREML, *several)
    assert outcome.code == 0, outcome.stderr
    said = [line for line in (outcome.stdout + outcome.stderr).splitlines() if "evaluated as Apple" in line]
    assert len(said) == 1


# Doubles the first weights of the prepared model before the child gets it.
WRONG_CONVERTER = """
import onnxport.converters.coreml.compiler as compile
right = compile.CoremlConverter.lower
def lower(self, model, *rest):
    import numpy, onnx_ir
    if True:
        double(model, numpy, onnx_ir)
    return right(self, model, *rest)
def double(model, numpy, onnx_ir):
    value = next(v for v in model.graph.initializers.values() if v.const_value.numpy().ndim == 4)
    value.const_value = onnx_ir.tensor(value.const_value.numpy() * numpy.float32(2), name=value.name)
compile.CoremlConverter.lower = lower
"""


def test_the_digest_is_of_what_is_inside_the_folder(sandbox: Sandbox, made: Path) -> None:
    from onnxport.formats.artifact import Artifact

    one, other = (Artifact.open(package(sandbox, f"{name}.mlpackage")) for name in ("one", "other"))
    assert one.digest() == other.digest()
    assert one.size == sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
    weights = next(file for file in other.files if file.name == "weight.bin")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0\1")
    assert one.digest() != other.digest()
    assert one.stamp != other.stamp


def test_names_that_core_ml_does_not_carry_are_mapped_and_said(sandbox: Sandbox) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("a/b:0", "1.out")]
    graph = helper.make_graph([helper.make_node("Relu", ["a/b:0"], ["1.out"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, sandbox.folder / "named.onnx")
    outcome = sandbox.run("convert", "named.onnx", *COREML, "--json")
    assert outcome.code == 0, outcome.stderr
    notes = " ".join(outcome.document["artifacts"][0]["notes"])
    assert "'a/b:0' is a_b_0, '1.out' is v_1_out in the package" in notes
    import onnxport

    with onnxport.load(sandbox.folder / "named.mlpackage") as runtime:
        answer = runtime.run({"a/b:0": np.array([[-1, 2, -3, 4]], np.float32)})["1.out"]
    assert answer.tolist() == [[0, 2, 0, 4]]


def test_doctor_knows_the_target(sandbox: Sandbox) -> None:
    assert sandbox.run("doctor", "--json").document["targets"]["coreml"] == {"works": True, "lacks": []}
    sandbox.patch(HIDDEN)
    found = sandbox.run("doctor", "--json")
    assert found.code == 0  # the other targets do without it
    assert found.document["targets"]["coreml"]["lacks"] == ["coremltools"]
    assert any("pip install coremltools" in remedy for remedy in found.document["remedies"])


def test_the_node_at_fault_is_found_in_a_package(sandbox: Sandbox) -> None:
    sandbox.patch(WRONG_CONVERTER)
    assert sandbox.run("convert", "model.onnx", *COREML, "--keep-rejected").code == 1
    found = sandbox.run("debug", "model.onnx", "model.rejected.mlpackage", "-o", "fault", "--json")
    assert found.code == 1
    diagnosis = found.document["artifacts"][0]["report"]["diagnosis"]
    assert "Conv" in diagnosis["summary"]
    assert (sandbox.folder / "fault" / "model.onnx").is_file()


# ---- 2: usage


@case(2, "model.mlpackage is a directory, but not a Core ML package", "remove it, or give -o another name")
def output_folder_is_no_package(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / PACKAGE).mkdir()
    (sandbox.folder / PACKAGE / "diary.txt").write_text("not ours to remove")
    return ("convert", "model.onnx", *COREML)


@case(2, "model.mlpackage is a file, but not a Core ML package")
def output_is_a_file(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / PACKAGE).write_text("not ours to remove")
    return ("convert", "model.onnx", *COREML)


@case(2, "does not end in .mlpackage")
def output_of_another_suffix(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *COREML, "-o", "model.mlmodel")


@case(2, "'--minimum-target'", "'iOS12'", "'iOS15'")
def unknown_system(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *COREML, "--minimum-target", "iOS12")


@case(2, "--precision: int4-weights is not allowed; give 'fp32', 'fp16', 'mixed', 'int8' or 'int16x8'")
def precision_of_another_target(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *COREML, "--precision", "int4-weights")


@case(2, "converting to coreml has no option 'layout'")
def option_of_another_target(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *COREML, "--layout", "nhwc")


@case(2, "--candidate-runtime: 'metal' is not allowed for runtime; give auto, predict, evaluator")
def unknown_runtime(sandbox: Sandbox) -> tuple[str | Path, ...]:
    package(sandbox)
    return ("validate", "model.onnx", PACKAGE, "--candidate-runtime", "runtime=metal")


@case(2, "the runtime of .mlpackage files has no 'delegate'")
def runtime_setting_of_another_format(sandbox: Sandbox) -> tuple[str | Path, ...]:
    package(sandbox)
    return ("validate", "model.onnx", PACKAGE, "--candidate-runtime", "delegate=none")


# ---- 3: no equivalent


@case(3, "StringConcat", "'pre/join'", "RegexFullMatch", "'pre/match'", "Core ML has no string operators")
def unsupported_operators_are_all_listed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    from fixtures import graphs

    onnx.save(graphs.two_unsupported(), sandbox.folder / "strings.onnx")
    return ("convert", "strings.onnx", *COREML)


@case(3, "'x'", "has a dimension of size 0, and Core ML has no empty tensors")
def an_input_without_elements(sandbox: Sandbox) -> tuple[str | Path, ...]:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [0, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, sandbox.folder / "empty.onnx")
    return ("convert", "empty.onnx", *COREML)


@case(3, "GatherND", "'pick'", "needs iOS16", "give --minimum-target iOS16")
def target_too_old_for_a_node(sandbox: Sandbox) -> tuple[str | Path, ...]:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])
    i = helper.make_tensor_value_info("i", TensorProto.INT64, [2, 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    node = helper.make_node("GatherND", ["x", "i"], ["y"], "pick", batch_dims=1)
    graph = helper.make_graph([node], "g", [x, i], [y])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, sandbox.folder / "pick.onnx")
    return ("convert", "pick.onnx", *COREML, "--minimum-target", "iOS15")


# ---- 4: the input


@case(4, "model.mlpackage is in coreml format", "give a .onnx file")
def package_as_source(sandbox: Sandbox) -> tuple[str | Path, ...]:
    package(sandbox)
    return ("convert", PACKAGE, *COREML)


@case(4, "model.mlpackage is a file", "is a folder", "unpack it if it is an archive")
def package_that_is_a_file(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / PACKAGE).write_bytes(b"PK\3\4")
    return ("validate", "model.onnx", PACKAGE)


@case(4, "old.mlmodel", "Core ML's older form of one file")
def older_form(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "old.mlmodel").write_bytes(b"\x08\4")
    return ("validate", "model.onnx", "old.mlmodel")


@case(4, "model.mlmodelc is a directory", "a compiled Core ML model")
def compiled_form(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "model.mlmodelc").mkdir()
    return ("validate", "model.onnx", "model.mlmodelc")


@case(4, "model.mlpackage is not a Core ML package", "it is empty")
def empty_package(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / PACKAGE).mkdir()
    return ("validate", "model.onnx", PACKAGE)


@case(4, "model.mlpackage is not a Core ML package", "it has no Manifest.json")
def package_without_manifest(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (package(sandbox) / "Manifest.json").unlink()
    return ("validate", "model.onnx", PACKAGE)


@case(4, "model.mlpackage is damaged")
def package_with_a_damaged_manifest(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (package(sandbox) / "Manifest.json").write_text("{")
    return ("validate", "model.onnx", PACKAGE)


@case(4, "model.mlpackage is damaged")
def package_with_a_list_for_a_manifest(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (package(sandbox) / "Manifest.json").write_text("[1]")
    return ("inspect", PACKAGE)


@case(4, "model.mlpackage is not a Core ML package", "it has no model.mlmodel")
def package_without_a_model(sandbox: Sandbox) -> tuple[str | Path, ...]:
    next(package(sandbox).rglob("model.mlmodel")).unlink()
    return ("validate", "model.onnx", PACKAGE)


@case(4, "model.mlpackage is damaged")
def package_cut_off(sandbox: Sandbox) -> tuple[str | Path, ...]:
    file = next(package(sandbox).rglob("model.mlmodel"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return ("inspect", PACKAGE)


@case(4, "model.mlpackage is damaged", "weight.bin")
def package_without_weights(sandbox: Sandbox) -> tuple[str | Path, ...]:
    next(package(sandbox).rglob("weight.bin")).unlink()
    return ("validate", "model.onnx", PACKAGE)


@case(4, "model.mlpackage is damaged", "weight")
def package_with_weights_cut_off(sandbox: Sandbox) -> tuple[str | Path, ...]:
    file = next(package(sandbox).rglob("weight.bin"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return ("validate", "model.onnx", PACKAGE)


@case(4, "cannot be read", "Permission denied", before_exec=unprivileged)
def package_that_may_not_be_read(sandbox: Sandbox) -> tuple[str | Path, ...]:
    next(package(sandbox).rglob("model.mlmodel")).chmod(0)
    return ("inspect", PACKAGE)


@case(4, "model.mlpackage holds a neuralNetwork, not an ML program")
def package_of_the_older_kind(sandbox: Sandbox) -> tuple[str | Path, ...]:
    model = messages("Model").Model(specificationVersion=5)
    model.neuralNetwork.SetInParent()
    next(package(sandbox).rglob("model.mlmodel")).write_bytes(model.SerializeToString())
    return ("validate", "model.onnx", PACKAGE)


@case(4, "model.mlpackage holds operators that the evaluator does not know: levitate", "on macOS")
def package_with_an_operator_of_nobody(sandbox: Sandbox) -> tuple[str | Path, ...]:
    file = next(package(sandbox).rglob("model.mlmodel"))
    model = messages("Model").Model.FromString(file.read_bytes())
    block = next(iter(model.mlProgram.functions["main"].block_specializations.values()))
    next(each for each in block.operations if each.type == "relu").type = "levitate"
    file.write_bytes(model.SerializeToString())
    return ("validate", "model.onnx", PACKAGE)


# ---- 5: a library or a platform is missing


@case(5, "coremltools, which is not installed", "pip install coremltools")
def converter_not_installed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sandbox.patch(HIDDEN)
    return ("convert", "model.onnx", *COREML)


@case(5, "coremltools, which is not installed", "pip install coremltools")
def nothing_to_read_packages_with(sandbox: Sandbox) -> tuple[str | Path, ...]:
    package(sandbox)
    sandbox.patch(HIDDEN)
    return ("validate", "model.onnx", PACKAGE)


@case(5, "coremltools has wheels for Linux x86_64, macOS arm64, macOS x86_64 only")
def platform_without_wheels(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sandbox.patch(HIDDEN + "import platform\nplatform.machine = lambda: 'riscv64'\n")
    return ("convert", "model.onnx", *COREML)


@case(5, "coremltools has wheels up to Python 3.13 only: do this step with such a Python")
def python_without_wheels(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sandbox.patch(HIDDEN + LATER_PYTHON)
    return ("convert", "model.onnx", *COREML)


LATER_PYTHON = """
import onnxport.pipelines.environment as environment
class Later:
    def __getattr__(self, name):
        return (3, 14, 0) if name == 'version_info' else getattr(sys, name)
import sys
environment.sys = Later()
"""


@case(5, "Core ML is not available", "run this on macOS")
def predict_without_core_ml(sandbox: Sandbox) -> tuple[str | Path, ...]:
    package(sandbox)
    return ("validate", "model.onnx", PACKAGE, "--candidate-runtime", "runtime=predict")


# ---- 6: the machine


def file_size_limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


@case(6, "model.mlpackage cannot be written", "Permission denied", before_exec=unprivileged)
def no_permission_to_write(sandbox: Sandbox) -> tuple[str | Path, ...]:
    closed = sandbox.folder / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    return ("convert", "model.onnx", *COREML, "-o", "closed/model.mlpackage")


@case(6, "model.mlpackage cannot be written", "file size limit", before_exec=file_size_limited)
def larger_than_the_file_size_limit(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", *COREML)


@pytest.mark.parametrize("name", CASES)
def test_failure_says_why_and_leaves_nothing(name: str, sandbox: Sandbox) -> None:
    assert_fails(CASES[name], sandbox)


def test_a_full_disk_leaves_the_older_package(sandbox: Sandbox) -> None:
    old = package(sandbox)
    before = sandbox.contents()
    outcome = sandbox.run("convert", "model.onnx", *COREML, before_exec=file_size_limited)
    assert outcome.code == 6
    assert sandbox.contents() == before
    assert json.loads((old / "Manifest.json").read_text())["fileFormatVersion"] == "1.0.0"


def test_validating_a_package_imports_no_coremltools(sandbox: Sandbox) -> None:
    package(sandbox)
    sandbox.patch(NOTHING_OF_IT)
    assert sandbox.run("validate", "model.onnx", PACKAGE).code == 0
    assert sandbox.run("inspect", PACKAGE).code == 0
    assert sandbox.run("convert", "model.onnx", *COREML, "-o", "other.mlpackage").code != 0


# Its first lines import others of its own.
NOTHING_OF_IT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith('coremltools.'):
            raise ImportError(f'{name} is imported')
sys.meta_path.insert(0, Refuse())
"""
