"""What a user may name as the source of an export, and what is said where it is none; no framework takes part."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from onnxport.core.errors import InputError, MissingDependencyError, OnnxportError, UsageError
from onnxport.exporters.factory import from_factory
from onnxport.exporters.missing_modules import EXTRAS
from onnxport.exporters.params import ExportParams, parse_dynamic
from onnxport.exporters.sources import KINDS, LOADERS, Source
from onnxport.pipelines.environment import LIBRARIES, SOURCES
from onnxport.pipelines.runner.jobs import exportation

# A module of a user's; the lines of its functions are named by the messages.
MODELS = """\
import os


def raises():
    return [1, 2][7]


def raises_in_a_library():
    import json
    return json.loads("{")


def ends():
    raise SystemExit("no model today")


def takes(width, *, depth=2):
    return width * depth


def gives_nothing():
    pass


def moves():
    os.chdir("/")
    print("moved")
    return {"a": "dictionary"}


def wants_what_is_not_here():
    import surely_absent_library


constant = 3
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, the current one; its modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users_models.py").write_text(MODELS)
    (tmp_path / "broken_models.py").write_text("def build(:\n    pass\n")
    (tmp_path / "raising_models.py").write_text("\n\nraise ValueError('no GPU')\n")
    (tmp_path / "frameless_models.py").write_text("import surely_absent_library.layers\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    importlib.invalidate_caches()
    return tmp_path


def refused(name: str, **options: Any) -> OnnxportError:
    params = ExportParams(**options)
    with pytest.raises(OnnxportError) as caught:
        from_factory(Source.of(name, params.weights), params)
    return caught.value


# Factory, arguments, the error, and what its sentence holds.
FACTORIES: list[tuple[str, list[str], type[OnnxportError], tuple[str, ...]]] = [
    (
        "users_models:raises",
        [],
        InputError,
        ("IndexError: list index out of range (users_models.py, line 5)",),
    ),
    ("users_models:raises_in_a_library", [], InputError, ("JSONDecodeError", "(users_models.py, line 10)")),
    ("users_models:ends", [], InputError, ("SystemExit: no model today (users_models.py, line 14)",)),
    ("users_models:takes", [], UsageError, ("takes(width, *, depth=2)", "'width'", "--arg NAME=VALUE")),
    ("users_models:takes", ["width=2", "height=3"], UsageError, ("(width, *, depth=2)", "'height'")),
    ("users_models:takes", ["width={"], UsageError, ("--arg width is not valid YAML",)),
    (
        "users_models:takes",
        ["width=two", "depth=3"],
        UsageError,
        ("gives str, which is not a known kind of model",),
    ),
    ("users_models:takes", ["width=two", "depth=x"], InputError, ("takes(width='two', depth='x') raises",)),
    (
        "users_models:gives_nothing",
        [],
        UsageError,
        ("gives None, which is not a known kind of model", "torch"),
    ),
    ("users_models:constant", [], UsageError, ("is neither a function nor a model",)),
    ("users_models:raise", [], UsageError, ("has no 'raise'", "did you mean raises")),
    ("users_models:xyz", [], UsageError, ("has no 'xyz'", "it has raises, raises_in_a_library, ends")),
    ("users_models:wants_what_is_not_here", [], MissingDependencyError, ("needs surely_absent_library",)),
    ("broken_models:build", [], InputError, ("SyntaxError", "(broken_models.py, line 1)")),
    ("raising_models:build", [], InputError, ("ValueError: no GPU (raising_models.py, line 3)",)),
    ("frameless_models:build", [], MissingDependencyError, ("needs surely_absent_library", "PYTHONPATH")),
    ("nowhere.models:build", [], InputError, ("the module 'nowhere.models' does not exist", "PYTHONPATH")),
]


@pytest.mark.parametrize(("name", "arguments", "kind", "says"), FACTORIES, ids=lambda each: str(each)[:40])
def test_a_factory_that_gives_no_model_is_told_why(
    name: str, arguments: list[str], kind: type[OnnxportError], says: tuple[str, ...], project: Path
) -> None:
    error = refused(name, arg=arguments)
    assert type(error) is kind
    for part in says:
        assert part in str(error)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("users_models", "write users_models:FUNCTION"),
        ("users_models.takes", "write users_models:takes"),
        ("absent_models", ""),
    ],
)
def test_a_module_without_its_function_is_told_how_to_name_one(name: str, fix: str, project: Path) -> None:
    error = refused(name)
    assert error.what == f"{name} does not exist"
    assert error.fix.partition(", ")[2] == fix


def test_a_factory_may_go_elsewhere(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "gives dict" in str(refused("users_models:moves"))
    assert Path.cwd() == project
    assert capsys.readouterr().out == "moved\n"  # into the child's log, in a run


# File, its content, the error, and what its sentence holds.
FILES: list[tuple[str, bytes | None, type[OnnxportError], tuple[str, ...]]] = [
    ("model.onnx", b"x", UsageError, ("is not a framework's model", "onnxport optimize")),
    ("weights.bin", b"x", UsageError, ("package.module:function", "--weights")),
    ("models.py", b"x", UsageError, ("package.module:function, without .py",)),
    ("model.ort", b"x", UsageError, ("export what that was made of",)),
    ("model.pt2", b"", InputError, ("is empty",)),
    ("model.pt2", None, InputError, ("does not exist",)),
    ("model.xyz", b"x", InputError, ("names no model of a framework", ".skops")),
    ("models:", None, UsageError, ("write package.module:function",)),
]


@pytest.mark.parametrize(("name", "content", "kind", "says"), FILES, ids=lambda each: str(each)[:40])
def test_what_is_no_source_is_told_what_would_be(
    name: str, content: bytes | None, kind: type[OnnxportError], says: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OnnxportError) as caught:
        Source.of(path)
    assert type(caught.value) is kind
    for part in says:
        assert part in str(caught.value)


def test_a_folder_is_told_by_what_is_in_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no model we know: none of saved_model\.pb"):
        Source.of(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"x")
    (tmp_path / "variables").mkdir()
    (tmp_path / "variables" / "variables.index").write_bytes(b"y")
    found = Source.of(tmp_path)
    assert (found.kind, found.size, len(found.files)) == ("tensorflow", 2, 2)


def test_the_digest_is_over_the_module_and_the_weights(project: Path) -> None:
    weights = project / "weights.pt"
    weights.write_bytes(b"1")
    digests = [Source.of("users_models:raises").digest(), Source.of("users_models:raises", weights).digest()]
    weights.write_bytes(b"2")
    digests.append(Source.of("users_models:raises", weights).digest())
    (project / "users_models.py").write_text(f"{MODELS}\n")
    digests += [Source.of("users_models:raises", weights).digest(), Source.of("users_models:ends").digest()]
    assert len(set(digests)) == 5


def test_weights_are_looked_for_before_anything_runs(project: Path) -> None:
    with pytest.raises(InputError, match=r"the weights absent\.pt do not exist"):
        Source.of("users_models:raises", Path("absent.pt"))
    (project / "folder").mkdir()
    with pytest.raises(InputError, match="the weights folder are a folder"):
        Source.of("users_models:raises", Path("folder"))


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("model.txt", {"exporter": "dynamo"}, "--exporter has no effect on a LightGBM model"),
        ("model.txt", {"weights": "model.txt"}, "--weights has no effect on a LightGBM model"),
        ("model.pt2", {"float64": True}, "--float64 has no effect on a PyTorch model"),
        ("model.cbm", {"signature": "serve"}, "--signature has no effect on a CatBoost model"),
        ("model.json", {"dynamic": "x=batch,_"}, "--dynamic has no effect on an XGBoost model"),
        ("model.cbm", {"output_names": ("y",)}, "--output-names has no effect on a CatBoost model"),
        ("model.json", {"paddle2onnx": "/bin/true"}, "--paddle2onnx has no effect on an XGBoost model"),
        ("model.json", {"arg": "width=3"}, "--arg is for a factory, and model.json is an XGBoost model"),
    ],
)
def test_options_for_other_kinds_are_refused(
    name: str, options: dict[str, Any], says: str, project: Path
) -> None:
    (project / name).write_bytes(b"x")
    with pytest.raises(UsageError, match=says):
        exportation(name, None, options)


@pytest.mark.parametrize("dim", ["1..32", "224|320", "8", "?"])
def test_a_name_of_a_dimension_is_no_size_and_has_no_bounds(dim: str) -> None:
    # A bound was taken for a name, and lost.
    with pytest.raises(UsageError, match=r"is not a name for a dimension of 'x'.*--shape x="):
        parse_dynamic(f"x={dim},_")
    assert parse_dynamic("x=batch,_,past + 1") == {"x": ("batch", None, "past + 1")}


def test_every_kind_has_a_loader_and_every_framework_an_extra() -> None:
    assert set(LOADERS) | {"sklearn"} == set(KINDS)
    assert set(SOURCES) - {"onnx"} <= set(KINDS)
    frameworks = set(EXTRAS.values())
    brought = {each.import_name: each.extra for each in LIBRARIES.values() if each.extra in frameworks}
    assert brought
    assert brought.items() <= EXTRAS.items()
