"""`onnxport samples`: the generated inputs as files that --inputs reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from click.testing import CliRunner

from onnxport.cli.commands import cli

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(cli, ["samples", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_every_file_runs_in_onnx_runtime_and_the_readme_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    found = json.loads(document(folder))
    session = onnxruntime.InferenceSession(DIGITS)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.npz"))
    assert files == sorted(each["path"] for each in found["files"])
    for each in found["files"]:
        with np.load(folder / each["path"]) as arrays:
            assert {name: list(arrays[name].shape) for name in arrays} == each["shapes"]
            session.run(None, dict(arrays))
        assert f"`{each['path']}`" in readme


def document(folder: Path) -> str:
    result = CliRunner().invoke(cli, ["samples", str(DIGITS), "-o", str(folder), "--json", "--quiet"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_what_was_written_proves_a_conversion(tmp_path: Path) -> None:
    run(DIGITS, "-o", tmp_path / "samples", "--samples", 2, "--seed", 3)
    result = CliRunner().invoke(
        cli,
        [
            "convert",
            str(DIGITS),
            "--to",
            "ort",
            "-o",
            str(tmp_path / "m.ort"),
            "--inputs",
            str(tmp_path / "samples"),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "proven" in result.stdout


def test_an_existing_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "mine.txt").write_text("mine")
    assert "exists" in run(DIGITS, "-o", tmp_path / "samples", code=2)
    assert [each.name for each in (tmp_path / "samples").iterdir()] == ["mine.txt"]


def test_a_model_that_no_input_runs_leaves_nothing(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[1, L] x) => (float[R] y)
        <int64[1] three = {3}, int64[1] four = {4}> {
        a = Reshape (x, three) b = Reshape (x, four) y = Concat <axis = 0> (a, b) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    said = run(tmp_path / "m.onnx", "-o", tmp_path / "samples", code=2)
    assert "Reshape 'b' takes 4 elements" in said
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.onnx"]
