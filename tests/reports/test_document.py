"""The JSON report and its published schema, checked with the jsonschema library."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from onnxport.reports import document
from onnxport.reports.run_report import RunReport
from tests.reports.handmade import failing, judgement, output, run_of

PUBLISHED = Path(__file__).parents[2] / "docs" / "schema" / "report.schema.json"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def parsed(text: str) -> Any:
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_published_schema_is_that_of_the_code() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == document.schema("report"), (
        "write onnxport.reports.document.schema('report') to docs/schema/report.schema.json"
    )


def test_real_run_keeps_the_schema(
    real: Path, outcome: str, validator: jsonschema.Draft202012Validator
) -> None:
    found = parsed((real / f"{outcome}.json").read_text(encoding="utf-8"))
    validator.validate(found)
    assert found["exit_code"] == (0 if outcome == "passing" else 1)


def test_run_made_by_hand_keeps_the_schema(
    handmade: RunReport, validator: jsonschema.Draft202012Validator
) -> None:
    text = document.view(handmade)
    validator.validate(parsed(text))
    assert document.view(RunReport.model_validate_json(text)) == text


def test_schema_allows_numbers_that_json_has_no_digits_for(
    validator: jsonschema.Draft202012Validator,
) -> None:
    run = run_of(judgement(output(max_abs=math.nan, scale=-math.inf, sqnr_db=math.inf)))
    found = parsed(document.view(run))
    validator.validate(found)
    shown = found["artifacts"][0]["report"]["judgements"][0]["outputs"][0]
    assert (shown["max_abs"], shown["scale"], shown["sqnr_db"]) == ("NaN", "-Infinity", "Infinity")


@pytest.mark.parametrize(
    ("field", "value"),
    [("exit_code", "one"), ("schema_version", 2), ("seconds", "fast"), ("artifacts", {}), ("command", None)],
)
def test_schema_refuses_what_is_no_report(
    field: str, value: Any, validator: jsonschema.Draft202012Validator
) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(parsed(document.view(failing())) | {field: value})


def test_schema_is_open_to_fields_that_a_later_version_adds(
    validator: jsonschema.Draft202012Validator,
) -> None:
    validator.validate(parsed(document.view(failing())) | {"later": 1})


def test_report_holds_no_tensors(real: Path, outcome: str) -> None:
    def longest(node: Any) -> int:
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return max([len(node) if isinstance(node, list) else 0, *map(longest, children)])

    assert longest(parsed((real / f"{outcome}.json").read_text(encoding="utf-8"))) < 100
