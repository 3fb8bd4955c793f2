"""The rows of a bench: every artefact under all settings that its runtime has."""

from __future__ import annotations

import difflib
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from onnxport.bench.params import BenchParams
from onnxport.bench.providers import PROVIDERS, TITLES
from onnxport.bench.report import Settings
from onnxport.bench.session import Failure
from onnxport.core.errors import MissingDependencyError, UsageError
from onnxport.formats.artifact import SUFFIXES, Artifact, Format
from onnxport.runtimes import registry

# Format to its default runtime, as in `--candidate-runtime runtime=`.
RUNTIMES: Mapping[str, str] = {format_: kind.name for format_, kind in registry.FIRST.items()}
# Format to the settings of its runtime beside the provider; an .ort file is already optimized.
_SETTINGS: dict[Format, tuple[str, ...]] = {
    "onnx": ("threads", "level"),
    "ort": ("threads",),
    "tflite": ("threads",),
    "coreml": (),
}


@dataclass(frozen=True)
class Planned:
    """A planned row."""

    artifact: Artifact
    settings: Settings
    # Reason why it is not tried; the user can do nothing about it here, so that it fails no command.
    failure: Failure | None = None


def plan_rows(artifacts: Sequence[Artifact], params: BenchParams) -> tuple[Planned, ...]:
    """Return all rows, each once, those of an artefact next to each other.

    Raises:
        UsageError: no runtime has the provider, or no runtime has this name.
        MissingDependencyError: a plugin's runtime cannot be used.
    """
    _check_providers(params.providers)
    _check_runtimes(params.runtimes)
    rows = [row for artifact in artifacts for row in _rows(artifact, params)]
    return tuple({(row.artifact.path, row.settings): row for row in rows}.values())


def _rows(artifact: Artifact, params: BenchParams) -> list[Planned]:
    own, among = RUNTIMES[artifact.format], registry.runtime_names(artifact.format)
    runtimes = [name for name in params.runtimes or (own,) if name in among and _runs(name, artifact)]
    if not runtimes:
        error = MissingDependencyError(
            f"none of {', '.join(params.runtimes)} runs {SUFFIXES[artifact.format]} files"
        )
        return [Planned(artifact, Settings(runtime=own), Failure("not here", error))]
    make = {name: _default_rows if name == own else _engine_rows for name in runtimes}
    return [row for name in runtimes for row in make[name](artifact, name, params)]


def _runs(name: str, artifact: Artifact) -> bool:
    kind = registry.find(name)
    return kind is not None and artifact.format in kind.formats


def _default_rows(artifact: Artifact, runtime: str, params: BenchParams) -> list[Planned]:
    """Return the rows of a format's default runtime."""
    if runtime not in PROVIDERS:  # of a format that this module has no settings for
        return _engine_rows(artifact, runtime, params)
    settings = _SETTINGS[artifact.format]
    providers = [each.lower() for each in params.providers if each.lower() in PROVIDERS[runtime]]
    failure = _absence(artifact, runtime, params.providers if not providers else ())
    combined = product(
        providers or [PROVIDERS[runtime][0] if not params.providers else "".join(params.providers[:1])],
        params.threads if "threads" in settings else (None,),
        params.levels if "level" in settings else (None,),
        params.batch or (None,),
    )
    rows = []
    for provider, threads, level, batch in combined:
        each = Settings(runtime=runtime, provider=provider, threads=threads, level=level, batch=batch)
        rows.append(Planned(artifact, each, failure))
    return rows


def _engine_rows(artifact: Artifact, runtime: str, params: BenchParams) -> list[Planned]:
    """Return the rows of a runtime without providers and levels: another engine, a plugin's, a new format's."""
    kind = registry.find(runtime)
    has_threads = kind is not None and "threads" in kind.settings
    combined = product(params.threads if has_threads else (None,), params.batch or (None,))
    return [
        Planned(artifact, Settings(runtime=runtime, threads=threads, batch=batch))
        for threads, batch in combined
    ]


def _absence(artifact: Artifact, runtime: str, unknown: Sequence[str]) -> Failure | None:
    """Return why no row of an artefact is tried, for instance for `unknown` providers; None where rows are."""
    if artifact.format == "coreml" and sys.platform != "darwin":
        why = f"{platform.system()} has no Core ML, and other runtimes would not measure it"
        what = "Core ML is not available on this system"
        error = MissingDependencyError(what, why=why, fix="run this command on macOS")
        return Failure("not here", error)
    if unknown:
        given, has = ", ".join(unknown), ", ".join(PROVIDERS[runtime])
        error = MissingDependencyError(f"{TITLES[runtime]} has no provider {given}", fix=f"it has {has}")
        return Failure("not here", error)
    return None


def _check_providers(names: Sequence[str]) -> None:
    known = sorted({name for each in PROVIDERS.values() for name in each})
    for name in names:
        if name.lower() not in known:
            raise _unknown(f"--providers: no runtime has a provider {name!r}", name, known)


def _check_runtimes(given: Sequence[str]) -> None:
    """Refuse unknown runtimes; the evaluator of ML programs is too slow to measure."""
    known = [
        name
        for name in dict.fromkeys(each for fmt in SUFFIXES for each in registry.runtime_names(fmt))
        if name != "evaluator"
    ]
    for name in given:
        if name not in known:
            raise _unknown(f"--runtimes: there is no runtime {name!r} to measure", name, known)


def _unknown(what: str, name: str, known: Sequence[str]) -> UsageError:
    nearest = difflib.get_close_matches(name.lower(), known, n=1)
    return UsageError(
        what, fix=f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(known)}"
    )
