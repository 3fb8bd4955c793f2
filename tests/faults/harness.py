"""Runs a row of the collection: makes the fault, measures its effect, asks the installed command in a fresh process."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from fixtures import models
from onnxport.validate.translation.judgement import BUG
from tests.faults import quantized, tflite
from tests.faults.collection import MODELS, SHAPES, Row
from tests.faults.made import MADE
from tests.faults.noise import Effect, baseline, distance

NOT_EQUIVALENT = ("not equivalent", "over budget")
_SECONDS = 600


@dataclass(frozen=True)
class Case:
    """A right reference and a wrong candidate.

    Attributes:
        where: the value that the wrong node gives, by its ONNX name; None for no single node.
        effect: what the fault does, measured without onnxport.
        options: for `validate` and `debug`.
    """

    reference: Path
    candidate: Path
    where: str | None
    effect: Effect
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of a row.

    Attributes:
        found: `validate` did not let the candidate pass: exit code 1 and not for lack of evidence, or it cannot run.
        named: `debug` named the node; None where the fault sits in no single one, or was not asked.
        said: what `debug` named instead.
    """

    id: str
    where: str | None
    noises: float
    share: float
    exit_code: int
    verdict: str
    reason: str
    found: bool
    named: bool | None = None
    said: str = ""

    @property
    def hidden(self) -> bool:
        return self.noises <= 1.0


def make(row: Row, folder: Path) -> Case:
    """The fault of a row, as files below `folder`.

    Raises:
        NoPlace: the model has no node for it.
    """
    if row.level == "made":
        return _made(row, folder)
    return _in_file(row, folder) if row.level == "file" else _in_graph(row, folder)


def judge(row: Row, case: Case, *, debug: bool = False) -> Outcome:
    """What the installed command says of a case."""
    run = command("validate", case.reference, case.candidate, *case.options, "--json")
    assert BUG not in run.stdout, f"{row.id}: the proof ended by an error of its own"
    verdict, reason = _verdict(run)
    outcome = Outcome(
        id=row.id,
        where=case.where,
        noises=case.effect.noises,
        share=case.effect.share,
        exit_code=run.returncode,
        verdict=verdict,
        reason=reason,
        found=verdict in NOT_EQUIVALENT or run.returncode in (2, 3, 4),
    )
    return _asked(outcome, case) if debug and outcome.found and case.where is not None else outcome


def _asked(outcome: Outcome, case: Case) -> Outcome:
    run = command("debug", case.reference, case.candidate, *case.options, "--json")
    diagnosis = _diagnosis(run)
    node = diagnosis.get("node") or {}
    given = {node.get("value"), *(each["value"] for each in diagnosis.get("candidates", ()))}
    named = bool(given & _outputs(case))
    said = (
        f"{node.get('op', '')} {node.get('value', '')}".strip()
        or diagnosis.get("summary")
        or run.stderr[-200:]
    )
    return dataclasses.replace(outcome, named=named, said="" if named else said)


def _outputs(case: Case) -> set[str | None]:
    """All that the guilty node gives: naming any of its values names it."""
    graph = onnx.load(case.reference, load_external_data=False).graph
    return {case.where}.union(*(node.output for node in graph.node if case.where in node.output)) - {""}


def _diagnosis(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        record = json.loads(run.stdout)
    except json.JSONDecodeError:
        return {}
    report = record["artifacts"][0]["report"] if "artifacts" in record else record
    found: dict[str, Any] = report.get("diagnosis") or {}
    return found


def draw(row: Row) -> random.Random:
    return random.Random(f"{row.fault} {row.model} {row.seed}")


def _in_graph(row: Row, folder: Path) -> Case:
    """A faulty ONNX graph, converted where the level says so."""
    reference = _reference(row, folder)
    broken = onnx.load(reference)
    where = getattr(importlib.import_module(f"tests.faults.{row.family}"), row.fault)(broken, draw(row))
    candidate = folder / "broken.onnx"
    onnx.save(broken, candidate)
    effect = baseline(reference, MODELS[row.model]).effect(candidate.read_bytes())
    if row.level not in ("tflite", "ort"):
        return Case(reference, candidate, where, effect)
    return Case(reference, converted(candidate, row, row.level), where, effect, shape_of(row, row.level))


def _reference(row: Row, folder: Path) -> Path:
    """The right model; for int8 what ONNX Runtime's quantizer makes of it, unless it is int8 already."""
    path = models.path(MODELS[row.model])
    if row.level != "int8" or row.model == "smart-turn":
        return path
    made = folder.parent / f"{row.model}-int8.onnx"
    return made if made.exists() else quantized.quantize(MODELS[row.model], made)


def shape_of(row: Row, level: str) -> tuple[str, ...]:
    return ("--shape", SHAPES[row.model]) if row.model in SHAPES and level in ("tflite", "file") else ()


def converted(source: Path, row: Row, target: str) -> Path:
    output = source.with_suffix(f".{target}")
    run = command("convert", source, "--to", target, "-o", output, "--no-validate", *shape_of(row, target))
    assert run.returncode == 0, f"{row.id}: {run.stderr}"
    return output


def _in_file(row: Row, folder: Path) -> Case:
    """A right `.tflite` file with a fault in it; its effect is measured by LiteRT on both files."""
    reference = models.path(MODELS[row.model])
    source = folder / "right.onnx"
    source.write_bytes(reference.read_bytes())
    right, wrong = converted(source, row, "tflite"), folder / "broken.tflite"
    tensor = tflite.put(getattr(tflite, row.fault), right, wrong, draw(row))
    return Case(
        reference, wrong, _onnx_name(right, tensor), _effect_of_file(row, right, wrong), shape_of(row, "file")
    )


def _onnx_name(path: Path, tensor: str | None) -> str | None:
    """The ONNX value that a tensor holds, by the note in the file; else its own name."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(path.read_bytes(), 0)
    notes = [model.Metadata(i) for i in range(model.MetadataLength())]
    note = next(each for each in notes if each.Name() == b"onnxport")
    manifest = json.loads(bytes(model.Buffers(note.Buffer()).DataAsNumpy()))
    known = {tap["key"]: name for name, tap in manifest["taps"].items()}
    outputs = {f"serving_default_{port['key']}_output": port["name"] for port in manifest["outputs"]}
    return (known | outputs).get(tensor, tensor)


def _effect_of_file(row: Row, right: Path, wrong: Path) -> Effect:
    """What a fault in a file does, over ONNX Runtime's noise of the model as a share of each output's scale."""
    known = baseline(models.path(MODELS[row.model]), MODELS[row.model])
    try:
        sets = [(tflite.answers(right, each), tflite.answers(wrong, each)) for each in known.sets]
    except (RuntimeError, ValueError):  # LiteRT refuses the file, or its sizes
        return Effect(np.inf, np.inf)
    noises = share = 0.0
    of_scale = {name: known.noise[0][name] / max(known.scale[0][name], 1e-30) for name in known.noise[0]}
    for one, other in sets:
        for name, values in one.items():
            off = distance(values, other[name]) / max(float(np.abs(values).max()), 1e-30)
            noise = of_scale.get(name, max(of_scale.values()))
            noises, share = max(noises, off / max(noise, 2.0**-24)), max(share, off)
    return Effect(noises, share)


def _made(row: Row, folder: Path) -> Case:
    right, wrong = MADE[row.fault].models()
    onnx.save(right, folder / "right.onnx")
    onnx.save(wrong, folder / "broken.onnx")
    effect = baseline(folder / "right.onnx").effect(wrong.SerializeToString())
    return Case(folder / "right.onnx", folder / "broken.onnx", MADE[row.fault].where, effect)


def command(verb: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The installed command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "onnxport", verb, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )


def _verdict(run: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    try:
        report = json.loads(run.stdout)["artifacts"][0]["report"]
    except (json.JSONDecodeError, KeyError, IndexError):
        return "refused", next((text for text in run.stderr.splitlines() if "error" in text), "")[:200]
    return report["verdict"], report["reason"]


def folder_of(row: Row, root: Path) -> Path:
    """A folder of its own for a row."""
    folder = root / hashlib.sha256(row.id.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    return folder
