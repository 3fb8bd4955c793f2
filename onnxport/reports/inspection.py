"""The terminal form of `onnxport inspect`: a model file's description."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping

from onnxport.core.errors import printable
from onnxport.core.shell_words import quote
from onnxport.formats.artifact import TensorSpec
from onnxport.inspection.report import Inspection, LabelRecord, LibrarySize, PortRecord, ReducedBuild
from onnxport.reports.memory_plan import plan_lines
from onnxport.reports.phrases import human_size

_LONGEST = 400  # letters of a step with its options


def inspection_lines(found: Inspection, *, detailed: bool = False) -> str:
    """Return a model file's description, a subject per line; a plan has all nodes if `detailed`."""
    manifest = found.manifest
    operators = printable(", ".join(f"{op} {count}" for op, count in found.operators.items()))
    rows = {
        "size": printable(f"{human_size(found.size)} in {', '.join(found.files)}"),
        "producer": printable(found.producer) or "unknown",
        "IR version": "" if found.ir_version is None else str(found.ir_version),
        "opset": printable(", ".join(f"{domain} {version}" for domain, version in found.opsets.items())),
        "parameters": f"{found.parameters:,}",
        "inputs": "\n".join(map(_port, found.inputs)),
        "outputs": "\n".join(map(_port, found.outputs)),
        "operators": textwrap.fill(operators, width=88, break_long_words=False),
        "dynamic": "\n".join(map(printable, found.dynamic)) or "nothing",
        "unusual": "\n".join(map(printable, found.unusual)) or "nothing",
    }
    if manifest is not None:
        makers = ", ".join(f"{name} {version}" for name, version in manifest["made_by"].items())
        source = f"SHA-256 {manifest['source']}, validation {manifest['validation']}"
        rows |= {"made by": printable(makers), "made from": printable(source)}
        rows["made with"] = "\n".join(
            textwrap.shorten(printable(_options(stage, given)), _LONGEST, placeholder=" ...")
            for stage, given in manifest["options"].items()
        )
    if found.labels:
        rows["labels"] = "\n".join(map(_labels, found.labels))
    if found.build:
        rows |= _build(found.build)
    lines = [printable(f"{found.path}   {found.format}")]
    for name, text in rows.items():
        for number, line in enumerate(text.splitlines()):
            lines.append(f"  {'' if number else name:<12}{line}")
    if found.plan:
        lines += ["", *plan_lines(found.plan, detailed=detailed)]
    return "\n".join(lines)


def _labels(labels: LabelRecord) -> str:
    if labels.count is None:
        return printable(f"{labels.output}: {labels.file}, which is not in the file or cannot be read")
    more = ", ..." if labels.count > len(labels.first) else ""
    shown = textwrap.shorten(printable(f"{', '.join(labels.first)}{more}"), _LONGEST, placeholder=" ...")
    return printable(f"{labels.output}: {labels.count} in {labels.file}: ") + shown


def _options(stage: str, given: object) -> str:
    """Return a step and its options, without those that ask for nothing."""
    options = given if isinstance(given, Mapping) else {}
    kept = {name: value for name, value in options.items() if value not in (None, False, "", [], {})}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in kept.items()}
    return " ".join((stage, *(f"{name}={text}" for name, text in texts.items())))


def _build(build: ReducedBuild) -> dict[str, str]:
    """Return what a reduced build of ONNX Runtime needs, and what it saves."""
    kernels, size = build.kernels, build.library
    needs = [printable(f"{build.operators} operators of {', '.join(build.types)}")]
    if kernels:
        needs.append(
            f"{kernels.kept} of the {kernels.registered:,} CPU kernels of ONNX Runtime {kernels.version} stay in the "
            f"build, {kernels.used} of them have the types of these operators"
        )
    if build.lacks:
        lacks = f"{build.config} lacks {', '.join(build.lacks)}: a build with it does not run the model"
        needs.append(printable(lacks))
    if not build.config_is_there:
        needs.append(f"{build.config} is not there: --required-operators {quote(build.config)} writes it")
    command = build.command
    if "'" not in command:  # a quoted word stays whole
        command = textwrap.fill(command, width=88, break_on_hyphens=False, subsequent_indent="  ")
    return {
        "needs": "\n".join(needs),
        "build": command.replace("\n", " \\\n"),
        "library": "\n".join((_library(size), *size.sources)),
    }


def _library(size: LibrarySize) -> str:
    least, full = human_size(size.least), f"in place of {human_size(size.whole)} on {size.platform}"
    if size.most is not None:
        return f"estimated at {least} to {human_size(size.most)} {full}, from"
    return f"more than {least} {full}; no published build has {printable(', '.join(size.beyond))}; from"


def _port(port: PortRecord) -> str:
    grid = "" if port.scale is None else f"   scale {port.scale:.6g}, zero point {port.zero_point}"
    return f"{TensorSpec(port.name, port.dtype, port.shape)}{grid}"
