"""The documents of bench, profile and deployment keep the schemas in docs/schema and read back as they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from onnxport.reports.bench import document as bench
from onnxport.reports.deployment import document as deployment
from onnxport.reports.profile import document as profile
from tests.reports.bench.handmade import REPORTS as BENCHES
from tests.reports.deployment.handmade import REPORTS as DEPLOYMENTS
from tests.reports.profile.handmade import REPORTS as PROFILES

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
MADE: Mapping[str, tuple[ModuleType, Mapping[str, Callable[[], BaseModel]]]] = {
    "bench": (bench, BENCHES),
    "deployment": (deployment, DEPLOYMENTS),
    "profile": (profile, PROFILES),
}


def published(kind: str) -> str:
    return (SCHEMAS / f"{kind}.schema.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", MADE)
def test_published_schema_is_that_of_the_code(kind: str) -> None:
    assert published(kind) == MADE[kind][0].schema()


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, (_, made) in MADE.items() for name in made]
)
def test_document_keeps_the_schema_and_reads_back(kind: str, name: str) -> None:
    document, made = MADE[kind]
    report = made[name]()
    text = document.view(report)
    found: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(json.loads(published(kind))).validate(found)
    assert document.view(type(report).model_validate_json(text)) == text
