"""Writes the files of `onnxport init` from the templates beside this module, all of them or none."""

from __future__ import annotations

import functools
import math
import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from onnxport.core.errors import UsageError, printable
from onnxport.formats.artifact import Staging, writing
from onnxport.pipelines.environment import LIBRARIES, SOURCES
from onnxport.pipelines.init.hosts import Host, Project
from onnxport.pipelines.init.installation import requirement
from onnxport.pipelines.init.model_summary import ModelSummary, Samples
from onnxport.pipelines.registry import TARGETS
from onnxport.pipelines.runner.speedup import TIMED
from onnxport.reports.phrases import human_size

if TYPE_CHECKING:
    from yaml import SafeDumper

_OUTPUT = "build"
# Beside the pipeline, for editors that complete its keys.
SCHEMA = "pipeline.schema.json"
_OFF = "# "
# The versions in a lock (lock/file.py) as requirements for pip; none without a lock. onnxport's own is a constraint
# alone: pip before 24 asks an index for it, although the same command installs it from a URL with extras.
_LOCKED = (
    r"""sed '1,/^versions:/d; /^[^ ]/,$d' {lock} | tr -d "' " | """
    "grep -v -e '^python:' -e '^platform:' | sed 's/:/==/' | "
    "tee versions.txt | grep -v '^onnxport==' > locked.txt || true"
)
# GitHub's runners of this platform: a lock applies to one platform.
_RUNNERS = {
    ("Linux", "x86_64"): "ubuntu-latest",
    ("Linux", "aarch64"): "ubuntu-24.04-arm",
    ("Darwin", "arm64"): "macos-latest",
    ("Windows", "AMD64"): "windows-latest",
}
# ImageNet's, used to train most image networks.
_COLORS: Mapping[str, object] = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
_WIDTH = 118


@dataclass(frozen=True)
class Plan:
    """The content of the files.

    Attributes:
        looks: the models; none for a template.
        samples: of the only model.
        lacking: targets that this machine cannot make, with the remedy.
        refused: model to target to the reason why that target refuses it.
    """

    file: Path
    looks: tuple[ModelSummary, ...]
    samples: Samples
    lacking: Mapping[str, str]
    refused: Mapping[str, Mapping[str, str]]

    def takers(self, target: str) -> list[str]:
        """Return the models that a target accepts."""
        return [look.name for look in self.looks if target not in self.refused.get(look.name, {})]

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that are switched on."""
        return tuple(
            name for name in TARGETS if name not in self.lacking and (self.takers(name) or not self.looks)
        )


def pipeline_text(plan: Plan) -> str:
    """Return the content of pipeline.yaml."""
    look = plan.looks[0] if len(plan.looks) == 1 else None
    height, width, channels = (look.image_size if look is not None else None) or (224, 224, 3)
    preprocess: dict[str, object] = {"resize": f"{height}x{width}", "scale": "1/255"}
    preprocess |= _COLORS if channels == len("rgb") else {}
    quantizes = bool(plan.targets) and all(each.can_be_quantized for each in plan.looks)
    return _render(
        "pipeline.yaml.j2",
        schema=SCHEMA,
        file=plan.file.name,
        looks=plan.looks,
        describe=_describe,
        export_hints=_export_hints,
        samples=plan.samples,
        preprocess=_write_setting(preprocess),
        imagenet=", ".join(
            f"{key}: {_write_setting(preprocess[key])}" for key in _COLORS if key in preprocess
        ),
        image=look is not None and look.image_size is not None,
        sizes=_write_setting(look.sizes) if look is not None and look.sizes else "",
        quantizes=quantizes,
        quantized=next((name for name in ("tflite", "ort", "coreml") if name in plan.targets), "tflite"),
        off="" if plan.samples.count else _OFF,
        targets=[_target(plan, name) for name in TARGETS],
        output=_OUTPUT,
        example=look.name if look is not None else "MODEL",
    )


def workflow_text(plan: Plan, host: Host, project: Project) -> str:
    """Return the workflow that runs the pipeline on a host."""
    inside = "" if project.inside == Path() else project.inside.as_posix()
    prefix = f"{inside}/" if inside else ""
    lock = f"{plan.file.stem}.lock"
    sources = [look.source for look in plan.looks if ":" not in look.source]
    # A model outside of the repository cannot be hashed there.
    watched = [plan.file.name, lock, *(source for source in sources if not Path(source).is_absolute())]
    hashed = [f"{prefix}{each}" for each in watched]
    return _render(
        f"{host}.yml.j2",
        file=shlex.quote(plan.file.name),
        inside=inside,
        prefix=prefix,
        python=".".join(platform.python_version_tuple()[:2]),
        runner=_RUNNERS.get((platform.system(), platform.machine()), "ubuntu-latest"),
        package=package_of(plan),
        locked=_LOCKED.format(lock=shlex.quote(lock)),
        key=f"onnxport-${{{{ runner.os }}}}-${{{{ hashFiles({', '.join(map(_literal, hashed))}) }}}}",
        lock=shlex.quote(lock),
        output=_OUTPUT,
    )


def _literal(text: str) -> str:
    """Return a text in an expression of GitHub."""
    return "'" + text.replace("'", "''") + "'"


def check_absent(paths: Iterable[Path]) -> None:
    """Refuse to overwrite files (UsageError)."""
    there = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if there:
        verb = "is" if len(there) == 1 else "are"
        raise UsageError(f"{' and '.join(there)} {verb} already there", fix="give --force to overwrite")


def write(texts: Mapping[Path, str]) -> None:
    """Write all of `texts`, the first one last; MachineError if they cannot be written."""
    main = next(iter(texts))
    with Staging(main) as staging:
        staged = {staging.folder / str(number): path for number, path in enumerate(texts)}
        for file, path in staged.items():
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(texts[path], encoding="utf-8")
        staging.commit(dict(reversed(staged.items())))
        Staging.settled = False  # no artefact: the command continues


def _render(template: str, **values: object) -> str:
    environment = Environment(
        loader=PackageLoader(__package__, ""),
        # GitHub's own expressions use double braces.
        variable_start_string="[[",
        variable_end_string="]]",
        block_start_string="[%",
        block_end_string="%]",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,
    )
    environment.filters |= {"yaml": _flow, "setting": _write_setting, "comment": _comment}
    return environment.get_template(template).render(**values)


def _describe(look: ModelSummary) -> list[str]:
    lines = [f"{human_size(look.size)}, takes {', '.join(map(str, look.inputs))}"]
    if look.is_quantized:
        lines.append(f"Its precision is {look.precision} already.")
    if look.states:
        pairs = ", ".join(f"{name} from {output}" for name, output in look.states.items())
        lines.append(f"Its state is fed back from run to run in every proof: {pairs}")
    return [_comment(line) for line in lines]


def _comment(text: str) -> str:
    """Return text that stays in one comment, whatever names it has."""
    line = printable(text)
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."


def _export_hints(look: ModelSummary) -> Iterator[str]:
    if look.kind in ("pytorch", "python"):
        yield "# What it takes, in its order, and which of that stays open; docs/guide/export.md has all options."
        yield "# export:"
        yield '#   input: {x: "1,3,224,224"}'
        yield '#   dynamic: {x: "batch,_,_,_"}'
    elif look.kind == "pickle":
        yield "# Loading a pickle runs the code in it: say so where you know who wrote it."
        yield "# export: {trust: true}"


def _target(plan: Plan, name: str) -> dict[str, Any]:
    """Return a target for the template; switched off if it cannot be made here, or of no model."""
    takers = plan.takers(name)
    why_not = ""
    if name in plan.lacking:
        why_not = f"Not on this machine: {plan.lacking[name]}"
    elif len(takers) < len(plan.looks):
        said = {look.name: plan.refused[look.name][name] for look in plan.looks if look.name not in takers}
        why_not = "It refuses " + "; ".join(f"{model} ({reason})" for model, reason in said.items())
    return {
        "name": name,
        "why_not": printable(why_not),
        "off": "" if name in plan.targets else _OFF,
        "models": takers if takers and len(takers) < len(plan.looks) else [],
        "hints": _hints(plan, name),
    }


# Options to propose for each target.
_OPTIONS: Mapping[str, Sequence[str]] = {
    "tflite": (
        "precision: fp16   # weights of half the size",
        "layout: nhwc   # images with the channels last",
    ),
    "coreml": ("precision: fp16   # half the size, and the Neural Engine", "minimum_target: iOS16"),
}
_OF_IMAGES = "layout"


def _hints(plan: Plan, name: str) -> list[str]:
    images = not plan.looks or any(look.image_size is not None for look in plan.looks)
    options = [each for each in _OPTIONS.get(name, ()) if images or not each.startswith(_OF_IMAGES)]
    largest = max((look.size for look in plan.looks), default=0)
    size = _round_up(largest) if largest else "5MB"
    limits = [f"max_size: {size}"]
    if name in TIMED:
        limits.append(
            "max_latency_ratio: 1.5   # of the model's own time in ONNX Runtime, on the same machine"
        )
    return [*options, *limits]


def _round_up(size: int) -> str:
    """Return a limit above `size` bytes, in two digits."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{round(1.2 * size / unit, 0 if size >= 10 * unit else 1):g}{name}"
    return "1kB"


def package_of(plan: Plan) -> str:
    """Return the requirement of this package with the extras that the models need."""
    extras = {LIBRARIES[name].extra for look in plan.looks for name in SOURCES.get(look.kind, ())} - {""}
    extras |= {"torch"} if any(look.kind == "python" for look in plan.looks) else set()
    extras |= {"images"} if plan.samples.images else set()
    return requirement(extras)


def _flow(value: object) -> str:
    """Return a value as YAML on one line, whatever names it has."""
    import yaml

    # Without Unicode, invisible characters are escapes: marks of direction, and what YAML takes for ends of lines.
    text: str = yaml.dump(
        value,
        Dumper=_flow_dumper(),
        default_flow_style=True,
        width=math.inf,
        allow_unicode=_is_printable(value),
        sort_keys=False,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _write_setting(value: object) -> str:
    """Return a value of pipeline.yaml, where `${` would begin a variable."""
    return _flow(_without_variables(value))


def _without_variables(value: object) -> object:
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, Mapping):  # keys have no variables
        return {key: _without_variables(each) for key, each in value.items()}
    return [_without_variables(each) for each in value] if isinstance(value, Sequence) else value


def _is_printable(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_is_printable(each) for pair in value.items() for each in pair)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(map(_is_printable, value))
    return str(value).isprintable()


@functools.cache
def _flow_dumper() -> type[SafeDumper]:
    """Return PyYAML's dumper without aliases, which also quotes what only YAML 1.2 reads as a number."""
    import yaml

    from onnxport.pipelines.config.scalars import TEXT, CoreLoader

    core = CoreLoader("")

    class FlowDumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        # Quoted twice, line breaks are escapes.
        style = None if value.isprintable() else '"'
        if core.resolve(yaml.ScalarNode, value, (True, False)) != TEXT:  # type: ignore[no-untyped-call]
            style = "'"
        return dumper.represent_scalar(TEXT, value, style=style)

    FlowDumper.add_representer(str, text)
    return FlowDumper
