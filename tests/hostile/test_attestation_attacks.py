"""Attestations of strangers are refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onnxport.core.errors import InputError
from onnxport.pipelines.attestation import Attestation


def _statement(proof: dict[str, str]) -> dict[str, Any]:
    definition = {
        "internalParameters": {"options": {}, "made_by": {}},
        "resolvedDependencies": [{"digest": {"onnxportModel": "0"}}],
    }
    run = {"byproducts": [{"annotations": proof}], "metadata": {"invocationId": "0"}}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "https://slsa.dev/provenance/v1",
        "subject": [],
        "predicate": {"buildDefinition": definition, "runDetails": run},
    }


def test_an_attestation_without_a_verdict_is_none(tmp_path: Path) -> None:
    proof = {"validation": "skipped", "verdict": "proven"}
    statement = _statement(proof)
    file = tmp_path / "a.intoto.json"
    file.write_text(json.dumps(statement))
    assert Attestation.read(file).verdict == "proven"
    del proof["verdict"]
    file.write_text(json.dumps(statement))
    with pytest.raises(InputError, match="is not an attestation of onnxport"):
        Attestation.read(file)


def test_an_attestation_of_many_levels_is_none(tmp_path: Path) -> None:
    """Its checksum is over indented text, whose size and time grow with the levels: 660 kB took 160 s."""
    statement = _statement({"validation": "skipped", "verdict": "proven"})
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    statement["predicate"]["runDetails"]["builder"] = [deep] * 20
    file = tmp_path / "a.intoto.json"
    file.write_text(json.dumps(statement))
    with pytest.raises(InputError, match="is not an attestation of onnxport"):
        Attestation.read(file)
