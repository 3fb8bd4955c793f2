"""Which rows a bench has: every artefact under all settings that its runtime knows."""

from __future__ import annotations

import difflib
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from onnxport.bench.engine import Failure
from onnxport.bench.params import BenchParams
from onnxport.bench.providers import PROVIDERS, TITLES
from onnxport.bench.report import Settings
from onnxport.core.errors import MissingDependencyError, UsageError
from onnxport.formats.artifact import SUFFIXES, Artifact, Format
from onnxport.runtimes import registry

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
        UsageError: a provider that no runtime has, or a runtime that there is not.
        MissingDependencyError: a runtime of a plugin that cannot be used.
    """
    _check(params.providers)
    _check_runtimes(params.runtimes)
    rows = [row for artifact in artifacts for row in _of(artifact, params)]
    return tuple({(row.artifact.path, row.settings): row for row in rows}.values())


def _of(artifact: Artifact, params: BenchParams) -> list[Planned]:
    own, among = RUNTIMES[artifact.format], registry.names(artifact.format)
    runtimes = [name for name in params.runtimes or (own,) if name in among and _runs(name, artifact)]
    if not runtimes:
        error = MissingDependencyError(
            f"none of {', '.join(params.runtimes)} runs {SUFFIXES[artifact.format]} files"
        )
        return [Planned(artifact, Settings(runtime=own), Failure("not here", error))]
    return [row for name in runtimes for row in (_own if name == own else _others)(artifact, name, params)]


def _runs(name: str, artifact: Artifact) -> bool:
    kind = registry.named(name)
    return kind is not None and artifact.format in kind.formats


def _own(artifact: Artifact, runtime: str, params: BenchParams) -> list[Planned]:
    """The rows of a runtime whose providers and settings are known here."""
    known = _KNOWN[artifact.format]
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


def _others(artifact: Artifact, runtime: str, params: BenchParams) -> list[Planned]:
    """The rows of an engine of others, or of a plugin's runtime; providers and levels are not theirs."""
    kind = registry.named(runtime)
    knows_threads = kind is not None and "threads" in kind.settings
    combined = product(params.threads if knows_threads else (None,), params.batch or (None,))
    return [
        Planned(artifact, Settings(runtime=runtime, threads=threads, batch=batch))
        for threads, batch in combined
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


def _check_runtimes(given: Sequence[str]) -> None:
    """Refuses what is no runtime; the evaluator of ML programs computes answers, in nobody's time."""
    known = [
        name
        for name in dict.fromkeys(each for fmt in SUFFIXES for each in registry.names(fmt))
        if name != "evaluator"
    ]
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name.lower(), known, n=1)
            fix = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(known)}"
            raise UsageError(f"--runtimes: nothing that can be measured is called {name!r}", fix=fix)
