"""Attestations of strangers are refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxport.core.errors import InputError
from onnxport.pipelines.attestation import Attestation


def test_an_attestation_without_a_verdict_is_none(tmp_path: Path) -> None:
    definition = {
        "internalParameters": {"options": {}, "made_by": {}},
        "resolvedDependencies": [{"digest": {"onnxportModel": "0"}}],
    }
    proof = {"validation": "skipped", "verdict": "proven"}
    run = {"byproducts": [{"annotations": proof}], "metadata": {"invocationId": "0"}}
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "https://slsa.dev/provenance/v1",
        "subject": [],
        "predicate": {"buildDefinition": definition, "runDetails": run},
    }
    file = tmp_path / "a.intoto.json"
    file.write_text(json.dumps(statement))
    assert Attestation.read(file).verdict == "proven"
    del proof["verdict"]
    file.write_text(json.dumps(statement))
    with pytest.raises(InputError, match="is not an attestation of onnxport"):
        Attestation.read(file)
