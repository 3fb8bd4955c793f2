"""Which rows a bench has: every artefact under all settings that its runtime knows."""

from __future__ import annotations

import difflib
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from onnxport.artifact import Artifact, Format
from onnxport.bench.engine import Failure
from onnxport.bench.params import BenchParams
from onnxport.bench.providers import PROVIDERS, TITLES
from onnxport.bench.record import Settings
from onnxport.errors import MissingDependencyError, UsageError

# Who runs a format, as `--candidate-runtime runtime=` spells it.
RUNTIMES: dict[Format, str] = {"onnx": "ort", "ort": "ort", "tflite": "litert", "coreml": "predict"}
# What a runtime takes of the options beside a provider; an .ort file has its optimizations behind it.
_KNOWN: dict[Format, tuple[str, ...]] = {
    "onnx": ("threads", "level"),
    "ort": ("threads",),
    "tflite": ("threads",),
    "coreml": (),
}


@dataclass(frozen=True)
class Planned:
    """A row to be.

    Attributes:
        failure: why it is not even tried: nothing that the user could mend here, so that it fails no command.
    """

    artifact: Artifact
    settings: Settings
    failure: Failure | None = None


def planned(artifacts: Sequence[Artifact], params: BenchParams) -> tuple[Planned, ...]:
    """All rows, those of an artefact side by side; each once.

    Raises:
        UsageError: a provider that no runtime has.
    """
    _check(params.providers)
    rows = [row for artifact in artifacts for row in _of(artifact, params)]
    return tuple({(row.artifact.path, row.settings): row for row in rows}.values())


def _of(artifact: Artifact, params: BenchParams) -> list[Planned]:
    runtime, known = RUNTIMES[artifact.format], _KNOWN[artifact.format]
    providers = [each.lower() for each in params.providers if each.lower() in PROVIDERS[runtime]]
    absent = _absent(artifact, runtime, params.providers if not providers else ())
    combined = product(
        providers or [PROVIDERS[runtime][0] if not params.providers else "".join(params.providers[:1])],
        params.threads if "threads" in known else (None,),
        params.levels if "level" in known else (None,),
        params.batch or (None,),
    )
    return [
        Planned(
            artifact,
            Settings(runtime=runtime, provider=provider, threads=threads, level=level, batch=batch),
            absent,
        )
        for provider, threads, level, batch in combined
    ]


def _absent(artifact: Artifact, runtime: str, others: Sequence[str]) -> Failure | None:
    """Why nothing of an artefact is tried.

    Args:
        others: the providers that were asked for, where the runtime has none of them.
    """
    if artifact.format == "coreml" and sys.platform != "darwin":
        why = f"{platform.system()} has none, and nothing stands in for it: its figures are those of a Mac"
        error = MissingDependencyError("Core ML is not here", why=why, fix="run this command on macOS")
        return Failure("not here", error)
    if others:
        asked, has = ", ".join(others), ", ".join(PROVIDERS[runtime])
        error = MissingDependencyError(f"{TITLES[runtime]} knows nothing of {asked}", fix=f"it has {has}")
        return Failure("not here", error)
    return None


def _check(names: Sequence[str]) -> None:
    known = sorted({name for each in PROVIDERS.values() for name in each})
    for name in names:
        if name.lower() not in known:
            nearest = difflib.get_close_matches(name.lower(), known, n=1)
            fix = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(known)}"
            raise UsageError(f"--providers: nobody has a provider {name!r}", fix=fix)
