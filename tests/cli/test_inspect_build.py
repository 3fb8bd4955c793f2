"""`onnxport inspect` of `.ort` files: the build of ONNX Runtime that runs them."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnxruntime.tools.reduced_build_config_parser import parse_config

from onnxport.core.errors import InputError, UsageError
from onnxport.inspection.reduced_build import reduced_build
from tests.cli.sandbox import Sandbox
from tests.converters.test_ort import DIGITS, converted
from tests.converters.test_required_operators import MANY


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.ort and second.ort and the list beside the first."""
    folder, other = tmp_path_factory.mktemp("app"), tmp_path_factory.mktemp("other")
    converted(DIGITS, folder)
    converted(onnx.parser.parse_model(MANY), other, "disable").rename(folder / "second.ort")
    return folder


@pytest.fixture
def app(files: Path, sandbox: Sandbox) -> Sandbox:
    shutil.copytree(files, sandbox.folder, dirs_exist_ok=True)
    return sandbox


def test_needs_and_command_of_one_file(app: Sandbox) -> None:
    found = app.run("inspect", "model.ort", "--json").document["build"]
    assert (found["files"], found["operators"], found["types"]) == (["model.ort"], 4, ["float"])
    assert found["lacks"] == []
    words = shlex.split(found["command"])
    assert words[words.index("--include_ops_by_config") + 1] == "model.required_operators.config"
    assert "--disable_ml_ops" in words
    assert found["kernels"]["version"] == onnxruntime.__version__
    assert 4 <= found["kernels"]["used"] <= found["kernels"]["kept"] < 20 < found["kernels"]["registered"]
    size = found["library"]
    assert 0 < size["least"] < size["most"] < size["whole"]
    assert all(source.startswith("https://github.com/microsoft/onnxruntime/") for source in size["sources"])


def test_several_files_of_an_app_have_one_list(app: Sandbox) -> None:
    outcome = app.run("inspect", "model.ort", "--with", "second.ort", "--required-operators", "app.config")
    assert outcome.code == 0
    assert "--include_ops_by_config app.config" in outcome.stdout
    operators, _ = parse_config(str(app.folder / "app.config"))
    assert {"Gemm", "Gather", "Neg"} <= operators["ai.onnx"][13]
    assert operators["com.microsoft"] == {1: {"FusedConv"}}


def test_a_size_is_not_made_up_for_what_nobody_published(files: Path) -> None:
    found = reduced_build([files / "second.ort"]).library
    assert (found.most, found.beyond) == (None, ("double",))


def test_a_missing_list_is_reported(app: Sandbox) -> None:
    outcome = app.run("inspect", "second.ort")
    assert "second.required_operators.config is not there: --required-operators" in outcome.stdout


def test_a_cut_list_is_reported(app: Sandbox) -> None:
    config = app.folder / "model.required_operators.config"
    config.write_text(config.read_text().replace("MaxPool", "AveragePool"))
    assert "lacks MaxPool 12" in app.run("inspect", "model.ort").stdout


def test_refusals_of_the_command(app: Sandbox) -> None:
    outcome = app.run("inspect", "model.onnx", "--with", "model.ort")
    assert (outcome.code, "model.onnx is not an .ort file" in outcome.stderr) == (2, True)


@pytest.mark.parametrize(
    ("names", "config", "kind", "said"),
    [
        (["model.ort", "nowhere.ort"], None, InputError, "nowhere.ort"),
        (["model.ort"], "model.ort", UsageError, "model.ort is one of the models"),
        (["model.ort"], "no/where.config", UsageError, "no for the output does not exist"),
    ],
)
def test_refusals(
    names: list[str], config: str | None, kind: type[Exception], said: str, files: Path
) -> None:
    with pytest.raises(kind, match=said):
        reduced_build([files / name for name in names], files / config if config else None)


def test_a_list_that_is_none_is_refused(files: Path, tmp_path: Path) -> None:
    shutil.copy(files / "model.ort", tmp_path)
    (tmp_path / "model.required_operators.config").write_text("hello")
    with pytest.raises(InputError, match="is not a list of operators"):
        reduced_build([tmp_path / "model.ort"])


def test_kernels_of_other_types_are_kept_and_not_used(tmp_path: Path) -> None:
    """ONNX Runtime registers Add by type: a list of operators keeps all, of which this model runs two."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, int64[4] i) => (float[4] y, int64[4] j)'
        " { y = Add(x, x)\n j = Add(i, i) }"
    )
    kernels = reduced_build([converted(model, tmp_path, "disable")]).kernels
    assert kernels is not None
    assert kernels.used == 2
    assert kernels.kept > 2
