"""The workers of our own stages: each combines functions of the rooms below into one step.

Imports are inside the functions: a child process starts before the parent loads its own libraries, and no target loads
the libraries of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onnxport.converters.params import CoremlParams, OrtParams, TfliteParams
from onnxport.core.errors import CannotConvertError, MachineError, MissingDependencyError, UsageError
from onnxport.formats.artifact import Artifact
from onnxport.formats.manifest import MAIN
from onnxport.optimizers.params import ExtractParams, OptimizeParams
from onnxport.pipelines.runner import functions
from onnxport.pipelines.runner.jobs import holds_back
from onnxport.pipelines.stages import Product, Work, Worker
from onnxport.quantize.params import QuantizeParams

if TYPE_CHECKING:
    from onnxport.converters.coreml.compiler import CoremlConverter
    from onnxport.converters.result import Compiled
    from onnxport.formats.model import Model
    from onnxport.quantize.contract import QuantizationInputs

# Number of the user's inputs on which a conversion to float16 measures values.
_MEASURED = 8
_FUNCTIONS_SINCE = 18  # iOS


def _without_start(make: Worker) -> Callable[[], AbstractContextManager[Worker]]:
    """Return the start of a worker that has nothing to start."""
    return lambda: nullcontext(make)


@_without_start
def ort(model: Model, params: OrtParams, work: Work) -> Product:
    """ONNX to ONNX Runtime format."""
    from onnxport.converters.ort import convert

    samples = _samples(model, work) if params.precision == "fp16" else ()
    with work.phases.phase("convert"):
        return Product(*convert(model, work.output, params, work.manifest, samples))


@_without_start
def optimize(model: Model, params: OptimizeParams, work: Work) -> Product:
    """ONNX to ONNX that computes the same: another opset, fewer nodes, float16."""
    from onnxport.optimizers.optimization import optimize
    from onnxport.quantize.eligibility import check_float

    if params.fp16:
        check_float(model)
    samples = _samples(model, work) if params.fp16 else ()
    folder = work.output.parent / "scratch"
    folder.mkdir()
    done = optimize(model, params, folder, samples, equivalence=work.equivalence, phase=work.phases.phase)
    with work.phases.phase("write"):
        artifact = done.model.noted(work.manifest, model).save(work.output, model)
    for each in (model, done.model):
        each.release()
    return Product(artifact, done.notes, done.facts)


@_without_start
def extract(model: Model, params: ExtractParams, work: Work) -> Product:
    """ONNX to a part of it."""
    from onnxport.optimizers.extraction import extract, find_cut
    from onnxport.optimizers.simplification.graph import measure_size

    with work.phases.phase("extract"):
        part = extract(model, find_cut(model, params.inputs, params.outputs))
    with work.phases.phase("write"):
        manifest = replace(work.manifest, labels=part.labels)
        artifact = part.noted(manifest, model).save(work.output, model)
    changed: dict[str, Any] = measure_size(model).change(measure_size(part))
    return Product(artifact, facts={"changed": changed})


@_without_start
def quantize(model: Model, params: QuantizeParams, work: Work) -> Product:
    """ONNX to ONNX of lower precision."""
    from onnxport.quantize.precisions import find_quantization

    setting = _setting(model, params, work)
    notes, facts = _check_samples(model, params, setting)
    notes = (*_describe_audio(setting), *notes)
    quantized = find_quantization(params.precision)(model, params, setting)
    with work.phases.phase("write"):
        artifact = quantized.model.noted(work.manifest, model).save(work.output, model)
    return Product(artifact, (*notes, *quantized.notes), facts | dict(quantized.facts))


def _setting(model: Model, params: QuantizeParams, work: Work) -> QuantizationInputs:
    """Return the setting of a quantization: the user's samples, found but not read."""
    from onnxport.quantize.contract import QuantizationInputs
    from onnxport.samples.preprocessing import preprocessing
    from onnxport.samples.readers import holds_images
    from onnxport.samples.split import Parts

    parts = Parts((), ())
    if params.calib is not None:
        parts = Parts.of(
            params.calib,
            model.inputs,
            settings=preprocessing(params.preprocess, params.calib),
            limit=params.calib_samples,
            seed=params.seed,
            holds_back=holds_back(params, work.validation),
            optional=_states(model, work),
        )
        others = work.validation.inputs if work.validation is not None else None
        if (
            params.preprocess
            and others in (None, params.calib)
            and not holds_images(parts.calibration + parts.held_back)
        ):
            what = f"--preprocess applies to images and audio, and {params.calib} has none"
            raise UsageError(what, fix="leave it out: arrays are fed as they are")
    folder = work.output.parent / "scratch"
    folder.mkdir()
    return QuantizationInputs(parts.calibration, parts.held_back, folder, work.phases, work.validation)


def _describe_audio(setting: QuantizationInputs) -> tuple[str, ...]:
    """Return notes on the rate of audio samples, and on what of the files is not used."""
    from onnxport.samples.audio import Window, describe_audio

    files = (*setting.calibration, *setting.held_back)
    return tuple(describe_audio([file.read for file in files if isinstance(file.read, Window)]))


def _check_samples(
    model: Model, params: QuantizeParams, setting: QuantizationInputs
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return notes on suspicious samples with their facts; with --strict they are a UsageError."""
    if not setting.calibration:
        return (), {}
    from onnxport.quantize.calibration.sample_checks import check_samples
    from onnxport.samples.domain import without_functions

    with setting.watch.phase("check samples"):
        found = check_samples(without_functions(model), setting.calibration, setting.held_back)
    if params.strict and found.findings:
        what, fix = f"the samples in {params.calib} look wrong", "correct them, or leave --strict out"
        raise UsageError(what, why="; ".join(found.findings), fix=fix)
    return tuple(f"samples: {finding}" for finding in found.findings), {"lint": found.facts}


@contextmanager
def coreml() -> Iterator[Worker]:
    """ONNX to Core ML: prepared in this process, lowered in a child whose imports overlap with that."""
    from onnxport.converters.coreml.compiler import CoremlConverter

    with CoremlConverter() as converter:

        def make(model: Model, params: CoremlParams, work: Work) -> Product:
            from onnxport.converters.constant_growth import describe_size

            models = functions.load_models(model, params.function)
            if params.function and int(params.minimum_target.removeprefix("iOS")) < _FUNCTIONS_SINCE:
                raise UsageError(
                    f"packages with several functions need iOS18, not {params.minimum_target}",
                    fix="give --minimum-target iOS18, or convert each model to a package of its own",
                )
            notes: list[str] = []
            for name in models:
                found, stored = _lower(converter, name, models, params, work)
                notes += [each if name == MAIN else f"function {name}: {each}" for each in found]
            with work.phases.phase("write"):
                compiled = converter.write(work.output, params)
            converter.rest()
            if stored is not None and len(models) == 1:
                notes += describe_size(model, stored, Artifact(work.output, "coreml"))
            facts = {"operators": compiled.operators}
            return Product(Artifact(work.output, "coreml"), (*notes, *compiled.notes), facts)

        yield make


def _lower(
    converter: CoremlConverter, name: str, models: Mapping[str, Model], params: CoremlParams, work: Work
) -> tuple[tuple[str, ...], int | None]:
    """Lower a function; return notes, and the bytes of its constants unless a note names these."""
    from onnxport.converters.constant_growth import constant_bytes, describe_growth
    from onnxport.optimizers.canonical_form import prepare

    is_main, model, params = name == MAIN, models[name], functions.options_for(params, name, models)
    with work.phases.phase("prepare"):
        prepared = prepare(
            model,
            shapes=params.shape,
            native=converter.native_ops,
            equivalence=work.equivalence if is_main else None,  # it has the main model's answers only
            unrolls=True,
            keeps_stored=True,
            keeps_dynamic=params.dynamic_quantization == "keep",
        )
        grown = describe_growth(model, prepared.model)
        stored = None if grown else constant_bytes(prepared.model, with_lists=True)
    with work.phases.phase("convert"):
        measures = is_main and params.precision in ("fp16", "mixed")
        samples = _samples(prepared.model, work) if measures else ()
        manifest = work.manifest if is_main else replace(work.manifest, source=model.artifact.digest())
        notes = converter.lower(prepared.model, work.output.parent, params, manifest, samples, name)
    return (*prepared.notes, *grown, *notes), stored


# Of TFLite: what a GPU computes in floats.
_FLOAT = (None, "fp32", "fp16")


def _samples(model: Model, work: Work) -> tuple[dict[str, Any], ...]:
    if work.inputs is None:
        return ()
    from onnxport.samples.preprocessing import preprocessing
    from onnxport.samples.readers import find_samples

    settings = preprocessing(work.inputs.preprocess, work.inputs.folder)
    states = _states(model, work)
    files = find_samples(work.inputs.folder, model.inputs, _MEASURED, settings=settings, optional=states)
    return tuple(dict(file.load().feeds) for file in files)


def _states(model: Model, work: Work) -> frozenset[str]:
    """Return the inputs that are fed back from an output; the user's samples may lack them."""
    from onnxport.samples.states import state_inputs

    return state_inputs(model, work.validation.state if work.validation is not None else {})


@contextmanager
def tflite() -> Iterator[Worker]:
    """ONNX to TFLite: prepared in this process, compiled in a child whose imports overlap with that."""
    from onnxport.converters.tflite.compiler import TfliteConverter

    with TfliteConverter() as converter:

        def direct(model: Model, params: TfliteParams, work: Work) -> Product:
            from onnxport.converters.constant_growth import constant_bytes, describe_growth, describe_size
            from onnxport.optimizers.canonical_form import prepare

            with work.phases.phase("prepare"):
                prepared = prepare(
                    model,
                    shapes=params.shape,
                    native=converter.native_ops,
                    equivalence=work.equivalence,
                    keeps_dynamic=params.dynamic_quantization == "keep",
                )
                grown = describe_growth(model, prepared.model)
                stored = constant_bytes(prepared.model, with_lists=True)
                notes, half = prepared.notes + grown, tuple[str, ...]()
            if "gpu" in params.fit and params.precision in _FLOAT:
                with work.phases.phase("measure float16"):
                    half = _fit_to_half(prepared.model, work)
            with work.phases.phase("convert"):
                manifest, tries = work.manifest, work.tries
                compiled = converter.convert(
                    prepared.model, work.output, params, manifest, model, tries=tries
                )
            converter.rest()
            notes += half
            if not grown:
                notes += describe_size(model, stored, Artifact(work.output, "tflite"))
            return _tflite_product(work, compiled, notes + compiled.notes, "direct")

        def make(model: Model, params: TfliteParams, work: Work) -> Product:
            if params.route == "onnx2tf":
                return _convert_by_onnx2tf(model, params, work)
            try:
                return direct(model, params, work)
            except CannotConvertError as refusal:
                if params.route == "direct" or _own_route_option(params):
                    raise
                return _second_route(refusal, model, params, work)

        yield make


def _fit_to_half(model: Model, work: Work) -> tuple[str, ...]:
    """Scale what a GPU in float16 would overflow in, where that is exact, and return notes on what it would make of it.

    The model is a prepared one, and changed.
    """
    from onnxport.optimizers.float16.half_precision import SCALED, describe_half
    from onnxport.optimizers.float16.magnitudes import measure_in_subprocess
    from onnxport.optimizers.float16.scales import fold_scales

    path, samples = work.output.with_name("measured.onnx"), _samples(model, work)
    model.hand_over(path)
    measured = measure_in_subprocess(path, {}, samples)
    if not (scaled := fold_scales(model.ir, measured.peaks)):
        return describe_half(model.ir, measured)
    model.hand_over(path)
    measured = measure_in_subprocess(path, {}, samples)
    return (SCALED.format(", ".join(map(repr, scaled))), *describe_half(model.ir, measured))


def _tflite_product(work: Work, compiled: Compiled, notes: tuple[str, ...], route: str) -> Product:
    from onnxport.converters.result import custom_names

    transposes = compiled.operators.get("TRANSPOSE", 0)
    facts = {"operators": compiled.operators, "transposes": transposes, "route": route}
    custom = custom_names(compiled.operators)
    named = f"no runtime here knows its custom operators ({', '.join(custom)})" if custom else ""
    return Product(Artifact(work.output, "tflite"), notes, facts, unrunnable=named, is_ours=route == "direct")


def _convert_by_onnx2tf(model: Model, params: TfliteParams, work: Work, why: str = "") -> Product:
    from onnxport.converters.tflite.second_route.onnx2tf import Onnx2tf

    if named := _own_route_option(params):
        raise UsageError(f"--{named} needs our own route", fix="give --route direct, or leave it out")
    tool = Onnx2tf.find(params.onnx2tf)
    with work.phases.phase("onnx2tf"):
        compiled = tool.convert(model, work.output, params, work.manifest)
    note = f"made by onnx2tf {tool.version}{why}"
    return _tflite_product(work, compiled, (note, *compiled.notes), "onnx2tf")


def _own_route_option(params: TfliteParams) -> str:
    """Return the first given option that onnx2tf ignores; empty for none."""
    if params.io != "float":
        return "io"
    return next(
        (
            name.replace("_", "-")
            for name in ("precision", "dynamic_quantization", "fit", "labels", "normalization")
            if getattr(params, name)
        ),
        "",
    )


def _may_help(refusal: CannotConvertError) -> bool:
    """Return whether onnx2tf may convert what we refuse, and the result be proven.

    Not where a size is missing, numbers are random or the opset is one that ONNX Runtime lacks, nor domains that
    onnx2tf lacks.
    """
    from onnxport.converters.lowering import RANDOM
    from onnxport.optimizers.opset import LiftError

    if isinstance(refusal, LiftError) and not refusal.refusals:
        return False
    return not any(
        "--shape" in each.why
        or each.why == RANDOM
        or ("::" in each.op and not each.op.startswith("com.microsoft::"))
        for each in refusal.refusals
    )


def _second_route(refusal: CannotConvertError, model: Model, params: TfliteParams, work: Work) -> Product:
    """Convert a model that we refuse by onnx2tf; our refusal, with the reason, if onnx2tf does not help."""
    from onnxport.converters.tflite.second_route.onnx2tf import HOW_TO_GET

    first = refusal.refusals[0] if refusal.refusals else None
    cause = f"{first.op} {first.node!r}: {first.why}" if first else refusal.why or refusal.what
    try:
        return _convert_by_onnx2tf(model, params, work, f", our own route refuses the model: {cause}")
    except MissingDependencyError as missing:
        if params.onnx2tf is not None:
            raise
        way_out = missing.fix
        if missing.fix == HOW_TO_GET:
            way_out = f"onnx2tf may convert it; {missing.fix}" if _may_help(refusal) else ""
    except (CannotConvertError, MachineError) as failure:
        way_out = f"the second route does not help: {failure}"
    fix = "; ".join(part for part in (refusal.fix, way_out) if part)
    raise CannotConvertError(refusal.what, why=refusal.why, fix=fix, refusals=refusal.refusals) from refusal
