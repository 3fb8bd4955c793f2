"""Engines that take a model whole or not at all: what their data files say of the real models against what they do.

    python -m benchmarks.deployment_engines                  # all models, all engines that are installed
    python -m benchmarks.deployment_engines --json FILE KEY...

Asked is the installed command, in a fresh process per model; the estimate is that of the data file alone. "too hopeful"
is a model that the data file takes and the engine does not, "too careful" the other way round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.simplify import KEYS
from fixtures import models
from onnxport.deployment.model_variants import ModelVariants
from onnxport.deployment.placement import ProbedModel, estimate_runtime
from onnxport.deployment.report import DeploymentReport, Placement
from onnxport.deployment.runtimes import RUNTIMES
from onnxport.formats.artifact import Artifact

ENGINES = ("openvino", "tract", "rten", "ncnn", "mnn")
VERDICTS = ("agree", "too hopeful", "too careful", "unknown")


@dataclass(frozen=True)
class Row:
    """One model and one engine: what is expected of it, what it does, and why not."""

    key: str
    engine: str
    expected: str
    found: str
    verdict: str
    why: str
    change: str


def asked(path: Path, shape: Sequence[str]) -> DeploymentReport:
    command = [
        sys.executable,
        "-m",
        "onnxport",
        "inspect",
        str(path),
        "--runs-on",
        ",".join(ENGINES),
        "--json",
    ]
    done = subprocess.run([*command, *shape], capture_output=True, text=True, check=True)
    return DeploymentReport.model_validate_json(done.stdout)


def rows(key: str) -> list[Row]:
    path = models.path(key)
    shape = [word for name, dims in models.shapes(key).items() if dims for word in _shape(name, dims)]
    with tempfile.TemporaryDirectory() as folder, ModelVariants() as workshop:
        subject = ProbedModel.of(Artifact.open(path), {}, Path(folder), workshop)
        expected = {name: estimate_runtime(subject, RUNTIMES[name]).placement for name in ENGINES}
    found = {each.runtime: each for each in asked(path, shape).placements}
    return [_row(key, name, expected[name], found[name]) for name in ENGINES]


def _shape(name: str, dims: Sequence[int]) -> list[str]:
    return ["--shape", f"{name}={','.join(map(str, dims))}"]


def _row(key: str, name: str, expected: Placement, found: Placement) -> Row:
    takes, does = expected.extent == "all", found.extent == "all"
    broken = found.extent == "unknown"
    verdict = "agree" if takes == does else "too hopeful" if takes else "too careful"
    said = found if not does else expected
    why = said.fallbacks[0].op + ": " + said.fallbacks[0].why if said.fallbacks else said.why
    command = found.change.command if found.change else ""
    return Row(
        key,
        name,
        expected.extent,
        found.extent,
        "unknown" if broken else verdict,
        why if takes != does else "",
        command,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("keys", nargs="*", default=KEYS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: list[Row] = []
    for key in options.keys:
        found += rows(key)
        for row in found[-len(ENGINES) :]:
            print(
                f"{row.verdict:<12} {row.engine:<9} {row.key:<50} {row.expected} -> {row.found}  {row.why}",
                flush=True,
            )
        if options.json:
            options.json.write_text(json.dumps([asdict(row) for row in found], indent=1))
    print()
    print(f"{'':<10}", *(f"{verdict:>12}" for verdict in VERDICTS))
    for engine in ENGINES:
        counts = Counter(row.verdict for row in found if row.engine == engine)
        print(f"{engine:<10}", *(f"{counts[verdict]:>12}" for verdict in VERDICTS))


if __name__ == "__main__":
    main()
