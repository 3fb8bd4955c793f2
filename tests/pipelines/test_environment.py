from __future__ import annotations

import platform
import re
import tomllib
from pathlib import Path

import pytest

from onnxport.pipelines import environment
from onnxport.pipelines.environment import LIBRARIES, SOURCES, TARGETS, Library, describe
from onnxport.pipelines.registry import TARGETS as STAGES

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))


OF_DEVELOPERS = ("all", "dev", "test", "test-s3", "test-trackers")


def _name(requirement: str) -> str:
    found = re.match(r"[\w-]+", requirement)
    assert found is not None
    return found.group()


def test_libraries_are_the_package_s_dependencies() -> None:
    project = PYPROJECT["project"]
    required = {_name(text): text for text in project["dependencies"]}
    assert {name for name, library in LIBRARIES.items() if not library.extra} == set(required)
    by_extra = {
        _name(text): extra
        # The first extra that names a library counts; others need it, too.
        for extra, texts in reversed(project["optional-dependencies"].items())
        if extra not in OF_DEVELOPERS
        for text in texts
    }
    assert {name: library.extra for name, library in LIBRARIES.items() if library.extra} == by_extra
    for name, library in LIBRARIES.items():
        if library.extra:
            continue
        assert bool(library.platforms) == ("platform_machine" in required[name]), name
        for system, machine in library.platforms:
            assert f"'{machine}'" in required[name], name
            assert f"'{({'Windows': 'win32'}).get(system, system.lower())}'" in required[name], name


def test_every_target_and_source_needs_libraries_that_are_listed() -> None:
    for needs in (*TARGETS.values(), *SOURCES.values()):
        assert set(needs) <= set(LIBRARIES)
    assert set(STAGES) == set(TARGETS)


def test_a_target_needs_what_makes_its_files_and_what_runs_them() -> None:
    assert list(TARGETS.items()) == [
        ("tflite", ("onnx", "onnx-ir", "litert-converter", "ai-edge-litert")),
        ("coreml", ("onnx", "onnx-ir", "coremltools")),
        ("ort", ("onnx", "onnx-ir", "onnxruntime")),
    ]
    assert environment.RUNS_ON == {
        "onnx": ("onnx", "onnx-ir", "onnxruntime"),
        "ort": ("onnxruntime",),
        "tflite": ("ai-edge-litert",),
        "coreml": ("coremltools",),
    }


def test_environment_names_what_took_part() -> None:
    assert set(describe(["onnx"])) == {"python", "platform", "cpu", "onnxport", "onnx"}


def test_another_build_of_a_library_stands_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "surely_absent_gpu-7.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: surely-absent-gpu\nVersion: 7.1\n", encoding="utf-8")
    library = Library("surely-absent", "nothing", builds=("surely-absent-gpu",))
    assert library.version is None
    monkeypatch.syspath_prepend(str(tmp_path))
    assert library.version == "7.1"


def test_the_report_names_the_instruction_sets_that_integer_products_depend_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(environment, "_cpu_flags", lambda: {"fpu", "avx2", "avx512_vnni"})
    assert describe([])["cpu"] == "x86_64 avx2 avx512_vnni"
    monkeypatch.setattr(environment, "_cpu_flags", set)
    assert describe([])["cpu"] == "x86_64"
