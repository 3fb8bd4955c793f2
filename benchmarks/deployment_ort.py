"""ONNX Runtime's real assignment against what `inspect --runs-on` reports of it, and the estimator against both.

    python -m benchmarks.deployment_ort                             # the providers of the installed build, all models
    python -m benchmarks.deployment_ort --estimate FOLDER           # and the estimate by FOLDER/docs/OperatorKernels.md
    python -m benchmarks.deployment_ort --node-tests FOLDER         # that estimate of ONNX's own 1,653 tests
    python -m benchmarks.deployment_ort KEY...                      # these models

The witness is none of ours: what ONNX Runtime logs as "Node placements" when a session is made, in a process of its own
and at the level of optimization after which providers are asked. It names the nodes of every provider; of one that
compiles groups it has a node per group. A build with such a provider (onnxruntime-openvino) needs an environment of
its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from fixtures import models
from onnxport.core.errors import OnnxportError
from onnxport.deployment.estimation import estimate
from onnxport.deployment.estimation.table import Table, load_table
from onnxport.deployment.model_variants import ModelVariants
from onnxport.deployment.placement import ProbedModel
from onnxport.deployment.report import Placement
from onnxport.deployment.runtimes import RUNTIMES
from onnxport.formats.artifact import Artifact

CPU = "CPUExecutionProvider"
# Made here of others' parts, or for other questions: not among the 34 of models.md.
_OTHERS = ("light/", "mobilenetv2/", "efficientnet_lite0/", "minilm/")

_WITNESS = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 0
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
onnxruntime.InferenceSession(sys.argv[1], options, providers=list(dict.fromkeys([sys.argv[2], "CPUExecutionProvider"])))
"""
_PLACED = re.compile(
    r"VerifyEachNodeIsAssignedToAnEp\]\s+(All nodes|Node\(s\)) placed on \[(\w+)\]\. Number of nodes: (\d+)"
)
_NODE = re.compile(r"VerifyEachNodeIsAssignedToAnEp\]\s{3,}(\w+) \((.*)\)$")


@dataclass
class Witness:
    """The placements that ONNX Runtime logs.

    Attributes:
        counts: provider to nodes.
        names: provider to operators and names, where it names them: it does where there are several providers.
        failed: it made no session.
    """

    counts: dict[str, int]
    names: dict[str, Counter[tuple[str, str]]]
    failed: bool


def witness(path: Path, provider: str) -> Witness:
    done = subprocess.run(
        [sys.executable, "-c", _WITNESS, str(path), provider],
        capture_output=True,
        text=True,
        errors="replace",
    )
    seen = Witness({}, {}, done.returncode != 0)
    current = ""
    for line in (done.stdout + done.stderr).splitlines():
        if found := _PLACED.search(line):
            current = found[2]
            seen.counts[current] = int(found[3])
            seen.names[current] = Counter()
        elif current and (found := _NODE.search(line)):
            seen.names[current][found[1], found[2]] += 1
    return seen


def reported(path: Path, runtime: str) -> Placement:
    """Return the report of the installed command, in a fresh process."""
    command = [sys.executable, "-m", "onnxport", "inspect", str(path), "--runs-on", runtime, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    return Placement.model_validate(json.loads(done.stdout)["placements"][0])


def disagreement(said: Placement, seen: Witness, provider: str) -> str:
    """Where the two differ; empty where they say the same."""
    if seen.failed or said.why:
        return (
            ""
            if seen.failed and said.extent == "none"
            else f"reported {said.why!r}, a session was made: {not seen.failed}"
        )
    compiled = provider != CPU
    own = seen.counts.get(provider, 0)
    if (said.partitions if compiled else said.taken) != own:
        return f"{said.partitions if compiled else said.taken} of {provider}'s, the log has {own}"
    others = sum(count for name, count in seen.counts.items() if name != provider)
    if others != len(said.fallbacks):
        return f"{len(said.fallbacks)} fall back, the log has {others}"
    if provider not in seen.counts:  # all on one: it names none
        return ""
    named = Counter((each.op.rpartition("::")[2], each.node) for each in said.fallbacks)
    logged = sum((names for name, names in seen.names.items() if name != provider), Counter())
    return "" if named == logged else f"fallbacks differ: {list((named - logged) + (logged - named))[:3]}"


def estimated(path: Path, table: Table) -> Placement:
    with tempfile.TemporaryDirectory() as folder, ModelVariants() as workshop:
        subject = ProbedModel.of(Artifact.open(path), {}, Path(folder), workshop)
        return estimate(subject.loaded, table).placement


def cpu_table(source: Path) -> Table:
    """ONNX Runtime's CPU provider, which no one has to estimate, by the document that others are estimated by."""
    from benchmarks.deployment_tables import table

    head = {
        "runtime": "ort-cpu",
        "title": "",
        "kind": "provider",
        "version": "",
        "sources": [""],
        "dated": "2026-01-01",
    }
    return Table.model_validate({**head, **table(source, CPU), "fallback": "nobody"})


def node_tests(table: Table) -> None:
    """Compare the models that ONNX Runtime loads with the estimate, for all kinds of operators and types."""
    counts: Counter[tuple[bool, bool]] = Counter()
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder, ModelVariants() as workshop:
        for path in sorted(models.node_tests().rglob("model.onnx")):
            try:
                subject = ProbedModel.of(Artifact.open(path), {}, Path(folder), workshop)
                takes = estimate(subject.loaded, table).placement.extent == "all"
            except OnnxportError as error:
                print(f"{path.parent.name}: {error}")
                continue
            try:
                onnxruntime.InferenceSession(str(path), settings, providers=[CPU])
                loads = True
            except Exception:
                loads = False
            counts[loads, takes] += 1
            if loads != takes:
                print(
                    f"{path.parent.name}: {'refused, but it loads' if loads else 'taken, but it does not load'}"
                )
    print(f"loads and is taken {counts[True, True]}, neither {counts[False, False]}")
    print(f"loads, but is refused {counts[True, False]}; is taken, but does not load {counts[False, True]}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("keys", nargs="*")
    parser.add_argument("--estimate", type=Path)
    parser.add_argument("--node-tests", type=Path)
    given = parser.parse_args(arguments)
    if given.node_tests:
        node_tests(cpu_table(given.node_tests))
        return 0
    known = models.keys()
    keys = given.keys or [key for key in known if key.endswith(".onnx") and not key.startswith(_OTHERS)]
    here = [each for each in RUNTIMES.values() if each.provider in onnxruntime.get_available_providers()]
    print(
        f"onnxruntime {onnxruntime.__version__}: {', '.join(each.name for each in here)}; {len(keys)} models"
    )
    table = cpu_table(given.estimate) if given.estimate else None
    wrong, nodes, missed = 0, 0, Counter[str]()
    for key in keys:
        path = models.path(key)
        for runtime in here:
            said = reported(path, runtime.name)
            difference = disagreement(said, witness(path, runtime.provider), runtime.provider)
            wrong += bool(difference)
            groups = "" if said.partitions is None else f" in {said.partitions} groups"
            taken = f"{said.taken:4} of {said.nodes:4}{groups:14}"
            guess = ""
            if runtime.has_table:
                by_table = estimated(path, load_table(runtime.name))
                guess = f"estimated {by_table.taken} in {by_table.partitions} groups"
            print(f"{key:45} {runtime.name:12} {taken} {difference or 'as logged'} {guess} {said.why[:60]}")
        if table:
            by_document = estimated(path, table)
            nodes += by_document.nodes
            missed.update(f"{each.op}: {each.why}" for each in by_document.fallbacks)
    print(f"{wrong} of {len(keys) * len(here)} reports differ from ONNX Runtime's log")
    if table:
        refused = f"{sum(missed.values())} of {nodes} nodes that the CPU provider takes"
        print(f"estimated: {refused} are refused: {dict(missed)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
