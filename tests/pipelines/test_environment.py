from __future__ import annotations

import re
import tomllib
from pathlib import Path

from onnxport.pipelines.environment import LIBRARIES, SOURCES, TARGETS, describe
from onnxport.pipelines.stages import TARGETS as STAGES

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))


def test_libraries_are_the_package_s_dependencies() -> None:
    required = {re.match(r"[\w-]+", text).group(): text for text in PYPROJECT["project"]["dependencies"]}  # type: ignore[union-attr]
    assert set(LIBRARIES) == set(required)
    for name, library in LIBRARIES.items():
        assert bool(library.platforms) == ("platform_machine" in required[name]), name
        for system, machine in library.platforms:
            assert f"'{machine}'" in required[name], name
            assert f"'{({'Windows': 'win32'}).get(system, system.lower())}'" in required[name], name


def test_every_target_and_source_needs_libraries_that_are_listed() -> None:
    for needs in (*TARGETS.values(), *SOURCES.values()):
        assert set(needs) <= set(LIBRARIES)
    assert set(STAGES) == set(TARGETS)


def test_environment_names_what_took_part() -> None:
    assert set(describe(["onnx"])) == {"python", "platform", "onnxport", "onnx"}
