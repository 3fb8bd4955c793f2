"""The documents of bench, profile and deployment keep the schemas in docs/schema and read back as they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from onnxport.bench import baseline
from onnxport.reports import document
from tests.reports.bench.handmade import REPORTS as BENCHES
from tests.reports.deployment.handmade import REPORTS as DEPLOYMENTS
from tests.reports.profile.handmade import REPORTS as PROFILES

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
MADE: Mapping[str, Mapping[str, Callable[[], BaseModel]]] = {
    "bench": BENCHES,
    "deployment": DEPLOYMENTS,
    "profile": PROFILES,
}


def published(kind: str) -> str:
    return (SCHEMAS / f"{kind}.schema.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [*MADE, "results"])
def test_published_schema_is_that_of_the_code(kind: str) -> None:
    assert published(kind) == document.schema(kind)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, made in MADE.items() for name in made])
def test_document_keeps_the_schema_and_reads_back(kind: str, name: str) -> None:
    report = MADE[kind][name]()
    text = document.view(report)
    found: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(json.loads(published(kind))).validate(found)
    assert document.view(type(report).model_validate_json(text)) == text


def test_the_example_of_results_measured_elsewhere_keeps_the_schema_and_is_read(tmp_path: Path) -> None:
    guide = (SCHEMAS.parent / "guide" / "devices.md").read_text(encoding="utf-8")
    start = guide.index('    {\n      "results_version"')
    text = guide[start : guide.index("\n    }\n", start) + 7]
    jsonschema.Draft202012Validator(json.loads(published("results"))).validate(json.loads(text))
    (tmp_path / "farm.json").write_text(text, encoding="utf-8")
    report = baseline.read(tmp_path / "farm.json")
    assert [(row.settings.provider, row.latency.median) for row in report.rows if row.latency] == [
        ("gpu", 4.1),
        ("xnnpack", 9.9),
    ]
