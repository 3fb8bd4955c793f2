"""`onnxport init`: the pipeline that it writes can be run as it stands, and so can everything that it proposes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml

from fixtures import models
from onnxport.cli.commands import cli
from onnxport.core.errors import UsageError
from onnxport.pipelines.config.json_schema import schema
from onnxport.pipelines.config.reader import read
from onnxport.pipelines.config.scalars import CoreLoader
from onnxport.pipelines.init import installation
from onnxport.pipelines.init.files import Plan, pipeline_text, workflow_text
from onnxport.pipelines.init.hosts import project_of
from onnxport.pipelines.init.model_summary import ModelSummary, Samples, find_samples_of, summarize
from onnxport.pipelines.init.project import _notes, create_project
from onnxport.pipelines.registry import TARGETS

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits"
REAL = (
    *("mobilenetv2/mobilenetv2.onnx", "silero-vad/silero_vad.onnx", "magika/model.onnx"),
    *("yunet/face_detection_yunet_2023mar.onnx", "synheart-trees/ExtraTrees_60_5_nozipmap.onnx"),
    *("minilm-int8/model.onnx", "rapidocr-v4/ch_PP-OCRv4_rec_infer.onnx", "basic-pitch/nmp.onnx"),
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # A repository of the test's own, whatever the folder lies in.
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return tmp_path


def called(*arguments: str) -> int:
    code: int = cli.main(["init", *arguments], standalone_mode=False)
    return code


def plan_of(folder: Path, *sources: str, **changes: Any) -> Plan:
    """What init knows of models in `folder` before it tries them."""
    looks = tuple(summarize(str(folder / source), folder)[0] for source in sources)
    samples = find_samples_of(looks[0], folder) if len(looks) == 1 else Samples()
    return Plan(**{"file": folder / "pipeline.yaml", "looks": looks, "samples": samples} | NOTHING | changes)


NOTHING: dict[str, Any] = {"lacking": {}, "refused": {}}


def with_samples(folder: Path) -> None:
    """Puts there what the file says the user will: a pipeline whose samples are missing is none."""
    (folder / "samples").mkdir()
    shutil.copy(DIGITS / "test.npz", folder / "samples")


def uncommented(text: str) -> str:
    """A pipeline with every option in it that stands in a comment."""
    key = re.compile(r"^(\s*)# (\s*(?:# )*)([\w-]+:(?: .*)?)$")
    head, version, body = text.partition("version: 1\n")
    while (changed := "\n".join(key.sub(r"\1\2\3", line) for line in body.split("\n"))) != body:
        body = changed
    return head + version + body


def test_it_is_fitted_to_the_model_and_names_the_next_command(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(DIGITS / "digits.onnx", project)
    assert called() == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote pipeline.yaml (digits.onnx to tflite, coreml, ort)",
        "wrote .github/workflows/onnxport.yml",
        "wrote pipeline.schema.json",
        "next: onnxport run pipeline.yaml",
    ]
    assert [cell.name for cell in read(Path("pipeline.yaml")).cells] == [
        "digits/tflite",
        "digits/coreml",
        "digits/ort",
    ]
    before = Path("pipeline.yaml").read_bytes()
    assert called("digits.onnx") == 2
    assert "pipeline.yaml and .github/workflows/onnxport.yml are already there" in capsys.readouterr().err
    assert Path("pipeline.yaml").read_bytes() == before


def test_without_a_model_it_writes_a_template_and_overwrites_nothing_unasked(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("--ci", "none", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["written"] == ["pipeline.yaml", "pipeline.schema.json"]
    assert document["notes"] == ["there is no .onnx file here: name your model in pipeline.yaml"]
    text = Path("pipeline.yaml").read_text()
    assert yaml.safe_load(text)["model"] == "model.onnx"
    Path("pipeline.yaml").write_text("mine")
    assert called("--ci", "none") == 2
    assert Path("pipeline.yaml").read_text() == "mine"
    assert called("--ci", "none", "--force") == 0
    assert Path("pipeline.yaml").read_text() == text
    assert sorted(path.name for path in project.iterdir()) == [
        ".git",
        "pipeline.schema.json",
        "pipeline.yaml",
    ]


@pytest.mark.parametrize("arguments", [("nowhere.onnx",), ("-o", "pipeline.json"), ("-o", "nowhere/p.yaml")])
def test_what_cannot_be_meant_leaves_nothing(
    arguments: tuple[str, ...], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(*arguments) in (2, 4, 6)
    assert capsys.readouterr().err.startswith("error: ")
    assert [path.name for path in project.iterdir()] == [".git"]


def test_every_option_in_a_comment_can_be_taken(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    text = uncommented(pipeline_text(plan_of(tmp_path, "digits.onnx")))
    with_samples(tmp_path)
    found = yaml.safe_load(text)
    jsonschema.validate(found, json.loads(schema()))
    assert found["validate"]["inputs"] == "samples"
    assert set(found["stages"]) == {"lean", "int8"}
    assert found["targets"]["tflite"]["max_latency_ratio"] == 1.5
    assert found["targets"]["tflite-int8"]["validate"] == {"budget": {"sqnr": 20}}
    (tmp_path / "pipeline.yaml").write_text(text)
    names = {cell.target for cell in read(tmp_path / "pipeline.yaml").cells}
    assert names == {"tflite", "coreml", "ort", "tflite-int8"}


def test_samples_beside_it_are_proven_on_and_quantized_with(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    (tmp_path / "samples").mkdir()
    shutil.copy(DIGITS / "test.npz", tmp_path / "samples")
    plan = plan_of(tmp_path, "digits.onnx")
    assert (plan.samples.count, plan.samples.place) == (100, "samples/test.npz")  # its rows
    (tmp_path / "pipeline.yaml").write_text(pipeline_text(plan))
    pipeline = read(tmp_path / "pipeline.yaml")
    assert [cell.target for cell in pipeline.cells] == ["tflite", "coreml", "ort", "tflite-int8"]
    assert all(
        cell.node.validation is not None and cell.node.validation.inputs == tmp_path / "samples" / "test.npz"
        for cell in pipeline.cells
    )


@pytest.mark.parametrize("folder", [".", "samples"])
def test_the_only_file_of_many_rows_is_taken_and_named(folder: str, tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    (tmp_path / folder).mkdir(exist_ok=True)
    images = np.zeros((12, 1, 8, 8), np.float32)
    np.savez(tmp_path / folder / "rows.npz", image=images)
    begun = create_project(str(tmp_path / "digits.onnx"), tmp_path / "pipeline.yaml", "none", force=False)
    file = (Path(folder) / "rows.npz").as_posix()
    assert f"the samples are the rows of {file}: 12 fit the model" in begun.notes
    assert yaml.safe_load((tmp_path / "pipeline.yaml").read_text())["validate"]["inputs"] == file


def test_two_files_of_many_rows_are_sets_of_inputs(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    (tmp_path / "samples").mkdir()
    for name in "ab":
        np.savez(tmp_path / "samples" / f"{name}.npz", image=np.zeros((2, 1, 8, 8), np.float32))
    samples = plan_of(tmp_path, "digits.onnx").samples
    assert (samples.count, samples.place) == (2, "samples")


def test_lines_stand_together_as_a_person_would_write_them(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    lines = pipeline_text(plan_of(tmp_path, "digits.onnx")).splitlines()
    assert all(line == line.rstrip() for line in lines)
    for blank, line in pairwise(lines):
        if not blank:
            assert re.match(r"(  )?\S", line), "a blank line is before a section or an entry of it"


def test_samples_that_do_not_fit_are_left_out_with_the_reason(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "notes.txt").write_text("none")
    text = pipeline_text(plan_of(tmp_path, "digits.onnx"))
    assert "# The folder samples is left out: " in text
    assert "validate" not in yaml.safe_load(text)


def test_a_target_that_refuses_a_model_is_switched_off_for_it(tmp_path: Path) -> None:
    for name in ("one.onnx", "two.onnx"):
        shutil.copy(DIGITS / "digits.onnx", tmp_path / name)
    refused = {
        "one": {"tflite": "StringSplit 'cut': no strings", "coreml": "the same"},
        "two": {"coreml": "so"},
    }
    plan = plan_of(tmp_path, "one.onnx", "two.onnx", refused=refused)
    text = pipeline_text(plan)
    (tmp_path / "pipeline.yaml").write_text(text)
    cells = [cell.name for cell in read(tmp_path / "pipeline.yaml").cells]
    assert cells == ["one/ort", "two/tflite", "two/ort"]
    assert "# It refuses one (StringSplit 'cut': no strings)" in text
    assert "# coreml:" in text


# Stems of files that mean something in YAML, in a variable of pipeline.yaml, or in a comment.
_STEMS = (
    *("a, b", "[x]", "{a: b}", "c: d", "a #b", "&a", "*a", "!t", "1e3", "0o17", "12_3", "true", "~", "<<"),
    *("- x", "?", " before", "after ", "it's", 'say "so"', "100%", "@x", "`x`", "|", ">", "=", "é"),
    *("a\nevil: 1", "a\u2028evil: 1", "\u202egpj", "\x1b[2J"),
)


@pytest.mark.parametrize("stem", _STEMS)
def test_a_file_of_any_name_is_one_value_of_the_pipeline(stem: str, tmp_path: Path) -> None:
    """Also where `run` then refuses it as a model's name."""
    for name in (stem, "two"):
        shutil.copy(DIGITS / "digits.onnx", tmp_path / f"{name}.onnx")
    text = pipeline_text(plan_of(tmp_path, f"{stem}.onnx", "two.onnx", refused={"two": {"tflite": "so"}}))
    found = yaml.load(text, CoreLoader)
    assert found["models"] == {stem: f"{stem}.onnx", "two": "two.onnx"}
    assert found["targets"]["tflite"]["models"] == [stem]
    assert set(found) == {"version", "models", "stages", "targets", "output", "reports"}
    found = yaml.load(pipeline_text(plan_of(tmp_path, f"{stem}.onnx")), CoreLoader)
    assert found["model"] == f"{stem}.onnx"
    assert set(found) == {"version", "model", "stages", "targets", "output", "reports"}


def test_a_list_of_models_may_have_commas(tmp_path: Path) -> None:
    for name in ("a, b", "1e3", "two"):
        shutil.copy(DIGITS / "digits.onnx", tmp_path / f"{name}.onnx")
    plan = plan_of(tmp_path, "a, b.onnx", "1e3.onnx", "two.onnx", refused={"two": {"tflite": "so"}})
    (tmp_path / "pipeline.yaml").write_text(pipeline_text(plan))
    cells = {cell.name for cell in read(tmp_path / "pipeline.yaml").cells if cell.target == "tflite"}
    assert cells == {"a, b/tflite", "1e3/tflite"}


@pytest.mark.parametrize("folder", ["${HOME}", "$${HOME}", "${{ secrets.TOKEN }}"])
def test_a_files_name_is_no_variable_of_the_pipeline(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    shutil.copy(DIGITS / "digits.onnx", tmp_path / folder)
    (tmp_path / "pipeline.yaml").write_text(pipeline_text(plan_of(tmp_path, f"{folder}/digits.onnx")))
    (found,) = {cell.node.model.origin.path for cell in read(tmp_path / "pipeline.yaml").cells}
    assert found == tmp_path / folder / "digits.onnx"


def test_what_is_missing_here_is_switched_off_with_the_remedy(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    plan = plan_of(
        tmp_path, "digits.onnx", lacking={"tflite": "litert-converter is not here; run: pip install it"}
    )
    text = pipeline_text(plan)
    assert list(yaml.safe_load(text)["targets"]) == ["coreml", "ort"]
    assert "# Not on this machine: litert-converter is not here; run: pip install it" in text


def test_a_factory_is_exported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets.py").write_text("def build(): ...\n")
    monkeypatch.chdir(tmp_path)
    found, artifact = summarize("nets:build", tmp_path)
    assert (found.name, found.kind, artifact) == ("build", "python", None)
    text = pipeline_text(Plan(tmp_path / "pipeline.yaml", (found,), Samples(), **NOTHING))
    (tmp_path / "pipeline.yaml").write_text(uncommented(text))
    with_samples(tmp_path)
    assert yaml.safe_load(text)["model"] == {"source": "nets:build"}
    (model,) = {cell.node.model.name for cell in read(tmp_path / "pipeline.yaml").cells}
    assert model == "build"


@pytest.mark.real
@pytest.mark.parametrize("key", REAL)
def test_what_is_written_for_real_models_is_a_pipeline(key: str, tmp_path: Path) -> None:
    shutil.copy(models.path(key), tmp_path / "model.onnx")
    plan = plan_of(tmp_path, "model.onnx")
    text = pipeline_text(plan)
    with_samples(tmp_path)
    for each in (text, uncommented(text)):
        (tmp_path / "pipeline.yaml").write_text(each)
        assert {cell.target for cell in read(tmp_path / "pipeline.yaml").cells} >= set(TARGETS)
    (found,) = plan.looks
    assert found.is_quantized == ("int8" in key)
    assert found.can_be_quantized == ("trees" not in key and "int8" not in key)
    assert bool(found.states) == ("silero" in key)
    assert (found.image_size is not None) == any(each in key for each in ("mobilenet", "yunet", "rapidocr"))


@pytest.mark.real
@pytest.mark.exhaustive
@pytest.mark.parametrize("key", REAL)
def test_what_is_written_for_real_models_runs_as_it_stands(key: str, project: Path) -> None:
    shutil.copy(models.path(key), project / "model.onnx")
    assert called("model.onnx") == 0
    assert cli.main(["run", "pipeline.yaml"], standalone_mode=False) == 0
    built = {path.stem for path in (project / "build" / "model").iterdir()}
    assert built >= set(TARGETS)


# The workflows.


def workflow(folder: Path, host: Any, **changes: Any) -> str:
    where = project_of(folder)
    said = {"file": folder / "pipeline.yaml", "looks": (), "samples": Samples()} | NOTHING | changes
    return workflow_text(Plan(**said), host, where)


def test_githubs_workflow_is_one(project: Path) -> None:
    (project / "deep").mkdir()
    for folder, prefix in ((project, ""), (project / "deep", "deep/")):
        found = yaml.safe_load(workflow(folder, "github"))
        assert set(found) == {"name", True, "permissions", "concurrency", "jobs"}  # YAML reads `on` as a bool
        (job,) = found["jobs"].values()
        assert job["defaults"]["run"] == {"shell": "bash", "working-directory": prefix.rstrip("/") or "."}
        used = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"(actions|github)/[\w/-]+@v\d+", each) for each in used)
        cache = next(step["with"] for step in job["steps"] if "cache" in step.get("uses", ""))
        assert cache["path"] == f"{prefix}.onnxport"
        assert f"hashFiles('{prefix}pipeline.yaml', '{prefix}pipeline.lock')" in cache["key"]
        for step in job["steps"]:
            if "run" in step:
                subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)


def test_gitlabs_job_is_one(project: Path) -> None:
    found = yaml.safe_load(workflow(project, "gitlab"))
    job = found["onnxport"]
    assert job["artifacts"]["reports"]["junit"] == "onnxport-report/junit.xml"
    assert job["cache"]["paths"] == [".onnxport", ".pip"]
    subprocess.run(["bash", "-n"], input="\n".join(job["script"]), text=True, check=True)


def test_the_host_is_the_projects(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert project_of(project).host == "github"
    subprocess.run(["git", "remote", "add", "origin", "git@gitlab.example:a/b.git"], cwd=project, check=True)
    assert project_of(project).host == "gitlab"
    Path(".gitlab-ci.yml").write_text("stages: [test]\n")
    assert called() == 0
    assert Path(".gitlab-ci.yml").read_text() == "stages: [test]\n"
    assert yaml.safe_load(Path(".gitlab/onnxport.yml").read_text())["onnxport"]
    assert "include: [{local: .gitlab/onnxport.yml}]" in capsys.readouterr().err
    Path(".github").mkdir()
    assert project_of(project).host == "github"


def test_the_workflow_installs_the_locks_versions_and_the_models_extras(project: Path) -> None:
    found = ModelSummary("m", "m.pt2", "pytorch")
    text = workflow(project, "github", looks=(found,), samples=Samples(3, images=True))
    (job,) = yaml.safe_load(text)["jobs"].values()
    (install,) = [step["run"] for step in job["steps"] if step.get("name") == "Install"]
    locking, installing, *_ = install.splitlines()
    pip = "python -m pip install 'onnxport[images,torch]' --requirement locked.txt --constraint versions.txt"
    assert installing == pip
    versions = "versions:\n  onnx: 1.2.3\n  onnxport: 1.0\n  platform: Linux x86_64\n  python: '3.11'\n"
    lock = f"# by us\n{versions}artefacts:\n  a: b\n"
    # onnxport's own version only limits what pip takes: an older pip does not find it at a URL.
    for written, locked, limits in (
        (lock, "onnx==1.2.3\n", "onnx==1.2.3\nonnxport==1.0\n"),
        (None, "", ""),
    ):
        Path("pipeline.lock").unlink(missing_ok=True)
        if written is not None:
            Path("pipeline.lock").write_text(written)
        subprocess.run(["bash", "-e", "-o", "pipefail", "-c", locking], check=True)
        assert (Path("locked.txt").read_text(), Path("versions.txt").read_text()) == (locked, limits)


@pytest.mark.parametrize(
    ("origin", "installed"),
    [
        ({}, "'onnxport'"),
        (
            {"url": "https://git.example/onnxport", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "'onnxport @ git+https://git.example/onnxport@ab12'",
        ),
    ],
)
def test_the_workflow_installs_this_package_from_where_it_came(
    origin: dict[str, Any], installed: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "_origin", lambda: origin)
    shutil.copy(DIGITS / "digits.onnx", project)
    created = create_project("digits.onnx", project / "pipeline.yaml", "github", force=False)
    text = next(path for path in created.written if path.suffix == ".yml").read_text()
    assert f"python -m pip install {installed} --requirement locked.txt --constraint versions.txt" in text
    assert not any("package index" in note for note in created.notes)


def test_a_package_from_a_folder_is_said_since_ci_has_no_such_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "_origin", lambda: {"url": "file:///home/me/onnxport", "dir_info": {}})
    from PIL import Image

    shutil.copy(DIGITS / "digits.onnx", project)
    (project / "samples").mkdir(exist_ok=True)
    Image.new("L", (8, 8)).save(project / "samples" / "0.png")
    created = create_project("digits.onnx", project / "pipeline.yaml", "github", force=False)
    (note,) = [each for each in created.notes if "file:///home/me/onnxport" in each]
    assert "'onnxport[images] @ git+URL'" in note, "the workflow needs the same extras from there"


def test_a_missing_folder_is_said_before_the_model_is_read(project: Path) -> None:
    (project / "model.onnx").write_bytes(b"no model")
    with pytest.raises(UsageError, match="ml for the output does not exist; create it: mkdir -p"):
        create_project(str(project / "model.onnx"), project / "ml" / "pipeline.yaml", "github", force=False)


def test_pictures_of_other_sizes_are_fitted_and_the_guess_is_said(tmp_path: Path) -> None:
    from PIL import Image

    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    (tmp_path / "samples").mkdir()
    for number in range(3):
        Image.new("RGB", (30, 40), (number, 90, 200)).save(tmp_path / "samples" / f"{number}.png")
    plan = plan_of(tmp_path, "digits.onnx")
    assert (plan.samples.count, plan.samples.images) == (3, True)
    text = pipeline_text(plan)
    assert yaml.safe_load(text)["validate"] == {
        "inputs": "samples",
        "preprocess": {"resize": "8x8", "scale": "1/255"},
    }
    assert "A guess" in text
    assert "ImageNet" not in text, "the model takes one channel"
    (tmp_path / "pipeline.yaml").write_text(text)
    read(tmp_path / "pipeline.yaml")
    assert any("a guess" in note for note in _notes(plan, None))


def test_settings_of_the_user_beside_pictures_are_not_guessed_over(tmp_path: Path) -> None:
    from PIL import Image

    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    (tmp_path / "samples").mkdir()
    Image.new("L", (30, 40)).save(tmp_path / "samples" / "0.png")
    (tmp_path / "samples" / "preprocess.yaml").write_text("resize: 9x9\n")
    assert "9x9" in plan_of(tmp_path, "digits.onnx").samples.why_not
    (tmp_path / "samples" / "preprocess.yaml").write_text("resize: 8x8\n")
    plan = plan_of(tmp_path, "digits.onnx")
    assert plan.samples.count == 1
    assert "bytes 0..255" not in pipeline_text(plan), "the folder says what becomes of a picture"
