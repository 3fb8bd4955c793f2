"""What is found about a lower precision beside its figures: faults of single nodes, and what some CPUs would lose."""

from __future__ import annotations

from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact
from onnxport.runtimes.ort.integer_products import holds_integer_products
from onnxport.validate.params import ValidateParams
from onnxport.validate.reference import Reference
from onnxport.validate.report import AUDITED, RIGHT, Judgement, Precision, Saturation

_SETS = 4  # of inputs, that saturation is worked out on


def with_single_nodes(
    reference: Reference,
    candidate: Artifact,
    params: ValidateParams,
    precision: Precision,
    judgements: tuple[Judgement, ...],
) -> tuple[tuple[Judgement, ...], tuple[str, ...]]:
    """The judgements, and one more where quality alone was asked and a node's rounding does not explain its loss.

    Returns:
        The judgements, and what the user should know about how far nodes were looked at.
    """
    passed = all(each.verdict in RIGHT for each in judgements)
    if not passed or any(each.question == "fidelity" for each in judgements):
        return judgements, ()
    # It runs single nodes, which most verdicts do without.
    from onnxport.validate.rounding_errors import UNAUDITED, audit

    found = audit(reference, candidate, params, precision)
    if found is None:
        return judgements, (UNAUDITED,)
    if found.worst is None:
        return judgements, (f"rounding explains what each of {found.examined} values that both show loses",)
    fault = Judgement(question="fidelity", verdict="not equivalent", reason=str(found.worst), against=AUDITED)
    return (*judgements, fault), ()


def saturation_of(
    reference: Reference, candidate: Artifact, judgements: tuple[Judgement, ...]
) -> Saturation | None:
    """What the candidate loses on x86 without VNNI: of an ONNX file with the reference's names, where what its integers
    lose is asked."""
    asked = {each.question for each in judgements}
    if candidate.format != "onnx" or "quality" not in asked or reference.steps > 1:
        return None
    from onnxport.validate.precision.onnx import read
    from onnxport.validate.saturation import finding

    if not holds_integer_products(candidate.path) or (model := read(candidate.path)) is None:
        return None
    names = {spec.name: spec.dtype for spec in reference.outputs}
    if {spec.name for spec in model.outputs} != names.keys():
        return None
    ordinary = [each for each in reference.sets if not (each.adversarial or each.nan)]
    taken = {spec.name for spec in model.inputs}
    sets = [
        ({name: array for name, array in feeds.items() if name in taken}, answers)
        for feeds, answers in map(reference.answers, ordinary[:_SETS])
    ]
    try:
        return finding(model, sets, [name for name, dtype in names.items() if dtype.startswith("float")])
    except OnnxportError:
        return None  # a finding beside the verdict, which stands without it
