"""Reports made by hand, with everything that a form has to handle."""

from __future__ import annotations

import math
from typing import Any

from onnxport.reports.run_report import (
    ArtifactRecord,
    FileRecord,
    Finding,
    Latency,
    RunReport,
    SourceRecord,
    Timing,
    Worth,
)
from onnxport.validate.report import (
    Diagnosis,
    Figure,
    Histogram,
    InputSet,
    Judgement,
    LayerFigure,
    NodeRef,
    NonFinite,
    OutputReport,
    Report,
    Side,
    Verdict,
    Worst,
)

# What a file from elsewhere may call its tensors: markup, tables, formulas, escape sequences, other scripts.
NASTY = "<script>alert('x')</script>|`b`*_[l](javascript:x)\x1b[31m\x00&amp;\"é漢字 ]]>"
CONV = NodeRef(name="/stem/conv1/Conv", op="Conv", value="conv1", stage="tflite")


def output(name: str = "scores", verdict: Verdict = "proven", **changes: Any) -> OutputReport:
    fields: dict[str, Any] = {
        "name": name,
        "dtype": "float32",
        "shape": (1, 10),
        "verdict": verdict,
        "rule": "within float32 noise" if verdict == "proven" else "difference 0.2 at [0,3], allowed 1e-05",
        "max_abs": 3.1e-7 if verdict == "proven" else 0.2,
        "mean_abs": 1e-7,
        "scale": 1.0,
        "noise": 1e-8,
        "tolerance": 1e-5,
        "sqnr_db": 132.4 if verdict == "proven" else 14.0,
        "mismatches": 0 if verdict == "proven" else 3,
        "elements": 60,
        "worst": worst(),
    }
    return OutputReport(**fields | changes)


def worst(index: tuple[int, ...] = (0, 3), candidate: float = 0.9) -> Worst:
    return Worst(index=index, reference=0.7, candidate=candidate, input_set="set 2 (image)")


def detailed() -> OutputReport:
    """A failing output with every field."""
    return output(
        "scores",
        "not equivalent",
        worst_elements=tuple(worst((0, i), 0.9 - i / 50) for i in range(5)),
        node=NodeRef(name="/head/Gemm", op="Gemm", value="scores"),
        figures=(
            Figure(metric="cosine", value=0.98, unit="", better="higher"),
            Figure(metric="ulps", value=math.inf, unit="ULP", better="lower"),
            Figure(metric="top1_agreement", value=0.9, unit="", better="higher", budget=0.98, met=False),
        ),
        histogram=Histogram(
            edges=tuple(range(-9, 2)),
            counts=(40, 900, 12000, 3100, 800, 90, 11, 3, 1, 0),
            equal=512,
            allowed=-5.0,
        ),
        nonfinite=NonFinite(
            reference_nan=0, candidate_nan=2, reference_infinite=1, candidate_infinite=1, differing=2
        ),
    )


def diagnosis(nodes: int = 40) -> Diagnosis:
    layers = tuple(
        LayerFigure(
            node=NodeRef(name=f"/block{i}/Conv", op="Conv", value=f"block{i}"),
            max_abs=1e-6 * (i + 1),
            scale=4.0,
            sqnr_db=math.inf if i < 4 else 140 - i if i < 25 else 30 - i / 10,
            local_share=40.0 if i == 25 else 0.3,
        )
        for i in range(nodes)
    )
    return Diagnosis(
        summary="Conv '/stem/conv1/Conv' is the first node that differs",
        node=CONV,
        candidates=(CONV, NodeRef(name="", op="Relu", value="relu1")),
        worst=worst((0, 1, 2, 3)),
        input_set="set 2 (image)",
        tapping="tapping changed nothing",
        repro="model.debug",
        runs=7,
        layers=layers,
        notes=("two nodes are one in the artefact",),
    )


def judgement(*outputs: OutputReport, verdict: Verdict = "proven", **changes: Any) -> Judgement:
    fields: dict[str, Any] = {
        "question": "fidelity",
        "verdict": verdict,
        "reason": "within float32 noise",
        "against": "the reference itself",
        "outputs": outputs,
    }
    return Judgement(**fields | changes)


def run_of(
    *judgements: Judgement, verdict: Verdict = "proven", reason: str = "within float32 noise", **changes: Any
) -> RunReport:
    """A run of one artefact; `changes` are fields of its Report."""
    side = Side(
        path="model.onnx", format="onnx", runtime="ONNX Runtime, CPU", size=4_747_000, digest="ab" * 32
    )
    fields: dict[str, Any] = {
        "reference": side,
        "candidate": side.model_copy(update={"path": "out/model.tflite", "format": "tflite"}),
        "verdict": verdict,
        "reason": reason,
        "judgements": judgements,
        "fed": (
            InputSet(label="set 1 (image)", shapes={"image": (1, 3, 8, 8), "k": ()}, source="generated"),
        ),
        "seconds": 1.2345,
    }
    report = Report(**fields | changes)
    artifact = ArtifactRecord(
        path="out/model.tflite" if report.passed else None,
        target="tflite",
        format="tflite",
        size=4_700_000,
        ratio=0.99,
        digest="cd" * 32,
        companions=(FileRecord(path="out/model.config", size=200),),
        report=report,
        timings=(Timing(step="load", seconds=0.1), Timing(step="reference", seconds=0.5, parallel=True)),
        notes=("only generated inputs were fed",),
        facts={"transposes": 1},
    )
    return RunReport(
        command="validate",
        arguments=("model.onnx", "out/my model.tflite", "--report", "report.html"),
        source=SourceRecord(path="model.onnx", format="onnx", size=4_747_000, digest="ab" * 32),
        artifacts=(artifact,),
        seconds=1.94,
        environment={"python": "3.11.7", "onnxport": "0.1.0"},
        exit_code=0 if report.passed else 1,
    )


def passing() -> RunReport:
    return run_of(judgement(output("scores"), output("boxes")))


def failing() -> RunReport:
    """Both questions asked, both answered with no; every optional field is there."""
    fidelity = judgement(
        detailed(), output("boxes"), verdict="not equivalent", reason="'scores': difference 0.2"
    )
    quality = judgement(
        output("scores", "over budget", rule="top1_agreement is below its budget"),
        verdict="over budget",
        question="quality",
        reason="'scores': top1_agreement 0.9, at least 0.98",
        against="the float original",
        metrics=(
            Figure(metric="char_error_rate", value=0.12, unit="", better="lower", budget=0.1, met=False),
            Figure(metric="sqnr", value=31.0, unit="dB", better="higher", budget=20.0, met=True),
        ),
    )
    return run_of(
        fidelity, quality, verdict="not equivalent", reason="'scores': difference 0.2", diagnosis=diagnosis()
    )


def nasty() -> RunReport:
    """A failing run in which every text that can come from a file is NASTY."""
    ref = NodeRef(name=NASTY, op=NASTY, value=NASTY, stage=NASTY)
    found = detailed().model_copy(
        update={
            "name": NASTY,
            "rule": NASTY,
            "node": ref,
            "worst": worst().model_copy(update={"input_set": NASTY}),
        }
    )
    tree = diagnosis().model_copy(
        update={"summary": NASTY, "node": ref, "candidates": (ref,), "repro": NASTY}
    )
    asked = judgement(found, verdict="not equivalent", reason=NASTY, against=NASTY)
    run = run_of(asked, verdict="not equivalent", reason=NASTY, diagnosis=tree)
    report = run.artifacts[0].report
    sides = {
        "reference": report.reference.model_copy(update={"path": f"{NASTY}.onnx"}),
        "candidate": report.candidate.model_copy(update={"path": f"{NASTY}.tflite"}),
        "fed": (InputSet(label=NASTY, shapes={NASTY: (1,)}, source="samples"),),
    }
    artifact = run.artifacts[0].model_copy(
        update={"report": report.model_copy(update=sides), "notes": (NASTY,), "facts": {NASTY: NASTY}}
    )
    return run.model_copy(update={"artifacts": (artifact,), "arguments": (NASTY,)})


def latency(**changes: Any) -> Latency:
    fields: dict[str, Any] = {
        "runtime": "ONNX Runtime 1.31.1",
        "before_ms": 9.21,
        "after_ms": 3.18,
        "speedup": 2.896,
        "low": 2.71,
        "high": 3.08,
        "confidence": 0.9586,
        "rounds": 96,
    }
    return Latency(**fields | changes)


def lowered(worth: Worth) -> RunReport:
    """A run that lowered the precision, with no budget to keep."""
    lone = output("scores", rule="SQNR 27.1 dB, top-1 98 %", sqnr_db=27.1)
    reason = "quality: SQNR 27.1 dB, top-1 98 %"
    run = run_of(judgement(lone, question="quality", reason=reason), reason=reason)
    record = run.artifacts[0].model_copy(update={"worth": worth})
    return run.model_copy(update={"artifacts": (record,)})


def faster() -> RunReport:
    return lowered(Worth(latency=latency()))


def slower() -> RunReport:
    found = Finding(reason="activations are signed", setting="--activations u8")
    odd = Finding(reason=NASTY, setting=NASTY)
    return lowered(
        Worth(latency=latency(speedup=0.625, low=0.5, high=0.8, after_ms=14.7), findings=(found, odd))
    )


def untimed() -> RunReport:
    return lowered(Worth(why_not="without a proof there are no inputs to run it on"))


def waived() -> RunReport:
    return run_of(verdict="unproven", reason="validation was switched off", fed=())


def inconclusive() -> RunReport:
    lone = output(
        "y", "inconclusive", rule="it does not vary with the inputs", max_abs=math.nan, sqnr_db=math.inf
    )
    asked = judgement(lone, verdict="inconclusive", reason="'y': it does not vary with the inputs")
    return run_of(asked, verdict="inconclusive", reason="'y': it does not vary with the inputs")


def lossy() -> RunReport:
    """A run that asks of quality alone, and fails on a budget."""
    sqnr = Figure(metric="sqnr", value=14.0, unit="dB", better="higher", budget=20.0, met=False)
    lone = output("scores", "over budget", rule="sqnr 14 dB", sqnr_db=14.0, figures=(sqnr,))
    asked = judgement(lone, question="quality", verdict="over budget", reason="'scores': sqnr 14 dB")
    return run_of(asked, verdict="over budget", reason="'scores': sqnr 14 dB")


def broken() -> RunReport:
    """A candidate that is NaN throughout."""
    nan = output(
        "y",
        "not equivalent",
        rule="nan at [0,3], the reference has 0.7",
        max_abs=math.inf,
        mean_abs=math.inf,
        sqnr_db=-math.inf,
        mismatches=60,
        worst=worst(candidate=math.nan),
        nonfinite=NonFinite(
            reference_nan=0, candidate_nan=60, reference_infinite=0, candidate_infinite=0, differing=60
        ),
    )
    asked = judgement(nan, verdict="not equivalent", reason=f"'y': {nan.rule}")
    return run_of(asked, verdict="not equivalent", reason=asked.reason)


def without_outputs() -> RunReport:
    asked = judgement(verdict="not equivalent", reason="the candidate failed on set 1")
    return run_of(asked, verdict="not equivalent", reason="the candidate failed on set 1")


def crowded() -> RunReport:
    """2,000 outputs, one of them wrong, with more axes than anyone reads."""
    many = [output(f"y{i}", shape=(1,) * 30, worst=worst((0,) * 30)) for i in range(1999)]
    bad = output("bad", "not equivalent", shape=(1,) * 30, worst=worst((0,) * 30))
    return run_of(
        judgement(*many, bad, verdict="not equivalent", reason="'bad': difference 0.2"),
        verdict="not equivalent",
        reason="'bad': difference 0.2",
        diagnosis=diagnosis(3000),
    )


RUNS = {
    "passing": passing,
    "failing": failing,
    "nasty": nasty,
    "waived": waived,
    "inconclusive": inconclusive,
    "lossy": lossy,
    "broken": broken,
    "without_outputs": without_outputs,
    "crowded": crowded,
    "faster": faster,
    "slower": slower,
    "untimed": untimed,
}
