"""The table of runtimes that `--runs-on` knows, and what it takes to ask each."""

from __future__ import annotations

import difflib
import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxport.core.errors import MissingDependencyError, UsageError
from onnxport.deployment.estimation.table import has_table
from onnxport.deployment.params import ALL
from onnxport.formats.artifact import SUFFIXES, Format

ASKING = "onnxport.deployment.probes"

_ORT_BUILDS = ("onnxruntime", *(f"onnxruntime-{build}" for build in "gpu openvino directml qnn cann".split()))


@dataclass(frozen=True)
class Runtime:
    """A runtime, or an execution provider of ONNX Runtime's.

    Attributes:
        name: its word in `--runs-on`; the data file of one that can be estimated is `data/<name>.yaml`.
        title: what it calls itself.
        asker: the module that asks it, one of `asking/` most often; empty where it is estimated only.
        needs: distributions of which one has to be installed for it to be asked; none where the asker needs nothing
            that does not come with onnxport.
        extra: the extra of ours that brings it.
        provider: the name that ONNX Runtime has for it, where it is an execution provider: it is asked where the
            installed build has it.
        formats: of files that it can be asked about.
        mends: what may make more of it take a model, where it is asked, in the words of `Reason.mends`.
        as_stored: whether it is asked about the file with its inner shapes as they are declared, which it may hold
            against the user's sizes.
    """

    name: str
    title: str
    asker: str = ""
    needs: tuple[str, ...] = ()
    extra: str = ""
    provider: str = ""
    formats: tuple[Format, ...] = ("onnx",)
    mends: tuple[str, ...] = ()
    as_stored: bool = False

    @property
    def is_here(self) -> bool:
        """Whether it can be asked, as far as distributions tell; a build may still lack the provider."""
        return bool(self.asker) and (not self.needs or any(map(_is_installed, self.needs)))

    @property
    def has_table(self) -> bool:
        return has_table(self.name)

    def missing(self) -> MissingDependencyError:
        """That it can neither be asked nor estimated."""
        if self.provider:
            return MissingDependencyError(
                f"--runs-on {self.name}: the installed ONNX Runtime has no {self.provider}",
                fix="install a build of onnxruntime that has it in an environment of its own",
            )
        return MissingDependencyError(
            f"--runs-on {self.name} needs {' or '.join(self.needs)}, which is not installed",
            fix=f"run: {sys.executable} -m pip install 'onnxport[{self.extra}]'" if self.extra else "",
        )


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _provider(name: str, title: str, provider: str) -> Runtime:
    return Runtime(
        name,
        f"ONNX Runtime, {title}",
        asker=f"{ASKING}.ort",
        needs=_ORT_BUILDS,
        provider=f"{provider}ExecutionProvider",
    )


def _engine(name: str, title: str, distribution: str, *, mends: tuple[str, ...] = ()) -> Runtime:
    """One that validate runs, too (`runtimes/registry.py`)."""
    needs = (distribution,)
    return Runtime(name, title, f"{ASKING}.engines", needs, extra=name, mends=mends, as_stored=True)


# In the order in which they are shown.
RUNTIMES: Mapping[str, Runtime] = {
    runtime.name: runtime
    for runtime in (
        _provider("ort-cpu", "CPU provider", "CPU"),
        Runtime(
            "ort-mobile",
            "ONNX Runtime's mobile usability checker",
            asker=f"{ASKING}.ort_mobile",
            needs=_ORT_BUILDS,
        ),
        _provider("nnapi", "NNAPI provider", "Nnapi"),
        _provider("coreml-ep", "Core ML provider", "CoreML"),
        _provider("xnnpack", "XNNPACK provider", "Xnnpack"),
        _provider("qnn", "QNN provider", "QNN"),
        _provider("cuda", "CUDA provider", "CUDA"),
        _provider("tensorrt", "TensorRT provider", "Tensorrt"),
        _provider("openvino-ep", "OpenVINO provider", "OpenVINO"),
        Runtime(
            "tflite-cpu",
            "LiteRT, XNNPACK delegate",
            asker=f"{ASKING}.tflite_cpu",
            needs=("ai-edge-litert",),
            formats=("onnx", "tflite"),
        ),
        Runtime(
            "tflite-gpu",
            "LiteRT, GPU delegate",
            asker=f"{ASKING}.tflite_gpu",
            needs=("ai-edge-litert",),
            formats=("onnx", "tflite"),
        ),
        Runtime(
            "coreml",
            "Core ML",
            asker=f"{ASKING}.coreml",
            needs=("coremltools",),
            formats=("onnx", "coreml"),
        ),
        _engine("openvino", "OpenVINO", "openvino"),
        _engine("tract", "tract", "tract", mends=("declared",)),
        Runtime("rten", "rten", asker=f"{ASKING}.rten", needs=("rten-convert",), extra="rten"),
        Runtime("candle", "candle"),
        Runtime("burn", "burn"),
        _engine("ncnn", "ncnn", "ncnn"),
        _engine("mnn", "MNN", "MNN"),
    )
}


def chosen(words: Sequence[str], format_: Format) -> tuple[Runtime, ...]:
    """The runtimes that `words` name; of `all` those that take files of this format and can be asked or estimated.

    Raises:
        UsageError: an unknown name or none, or a runtime that takes no such file.
    """
    if not words:
        raise UsageError("--runs-on names no runtime", fix="give all, or names of runtimes")
    found: dict[str, Runtime] = {}
    for word in words:
        if word == ALL:
            found |= {
                name: each
                for name, each in RUNTIMES.items()
                if format_ in each.formats and (each.has_table or each.is_here)
            }
        else:
            found[word] = _named(word, format_)
    if not found:  # of which --error-on-fallback would pass
        raise UsageError(
            f"no runtime can be asked about {SUFFIXES[format_]} files",
            fix="give the model that was converted from",
        )
    return tuple(each for name, each in RUNTIMES.items() if name in found)


def _named(word: str, format_: Format) -> Runtime:
    runtime = RUNTIMES.get(word)
    if runtime is None:
        nearest = difflib.get_close_matches(word, (*RUNTIMES, ALL), n=1)
        way_out = f"did you mean {nearest[0]!r}?" if nearest else f"known are all, {', '.join(RUNTIMES)}"
        raise UsageError(f"--runs-on knows no runtime {word!r}", fix=way_out)
    if format_ not in runtime.formats:
        suffixes = " and ".join(SUFFIXES[each] for each in runtime.formats)
        raise UsageError(
            f"--runs-on {word} is about {suffixes} files", fix="give the model that was converted from"
        )
    return runtime
