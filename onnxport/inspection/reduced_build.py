"""The build of ONNX Runtime that runs some `.ort` files and nothing else: kernels, command, size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from onnxport.converters.required_operators import (
    ONNX,
    SUFFIX,
    OperatorList,
    Use,
    find_uses,
    parse_list,
    write_list,
)
from onnxport.core.errors import InputError, UsageError
from onnxport.core.shell_words import join, quote
from onnxport.formats import ort_file
from onnxport.formats.artifact import Artifact, Staging, writing
from onnxport.formats.ort_file import Table
from onnxport.inspection.report import Kernels, LibrarySize, ReducedBuild

# C++'s names of element types where ONNX's differ by more than "_t".
_ONNX_TYPES = {"std::string": "string", "MLFloat16": "float16", "BFloat16": "bfloat16"}
# An operator's name in the resolver of a file to the operands that its kernel's type names stand for.
Resolver = Mapping[str, Mapping[str, tuple[tuple[bool, int], ...]]]


def reduced_build(paths: Sequence[Path], config: Path | None = None) -> ReducedBuild:
    """Return the build that runs all `.ort` files of `paths`.

    Args:
        paths: one file, or all files of an app.
        config: where to write the list of their operators; without it, the list beside the first file is read.

    Raises:
        InputError: a file is missing or damaged, or the list beside it is not a list of operators.
        UsageError: a file is no `.ort` file, or `config` is one of them.
        MachineError: `config` cannot be written.
    """
    sessions = [_read_session(path) for path in paths]
    nodes = [use for path, session in zip(paths, sessions, strict=True) for use in _read_uses(path, session)]
    place = config or paths[0].with_name(paths[0].stem + SUFFIX)
    listed = _read_list(place) if config is None and place.is_file() else None
    if listed is None:
        text = write_list(paths)
        listed = _parse_own_list(text, paths[0])
        if config is not None:
            _write(text, config, paths)
    return ReducedBuild(
        files=tuple(path.name for path in paths),
        config=place.name,
        config_is_there=place.is_file(),
        operators=len({(node.domain, node.version, node.operator) for node in nodes}),
        types=tuple(sorted({type_ for node in nodes for type_ in (*node.inputs, *node.outputs) if type_})),
        kernels=_count_kernels(nodes, list(map(_read_resolver, paths, sessions))),
        lacks=listed.lacks(nodes),
        command=_command(place.name, uses_ml=any(node.domain == "ai.onnx.ml" for node in nodes)),
        library=_find_library_size(nodes),
    )


def _read_session(path: Path) -> Table:
    if Artifact.open(path).format != "ort":
        raise UsageError(
            f"{path} is not an .ort file",
            why="a reduced build of ONNX Runtime runs only this format",
            fix=f"convert it first: onnxport convert {quote(path)} --to ort",
        )
    try:
        return ort_file.read(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path} cannot be read", why=str(error)) from error


def _read_uses(path: Path, session: Table) -> list[Use]:
    try:
        return list(find_uses(session))
    except (KeyError, IndexError) as error:
        raise InputError(f"{path} cannot be read", why="the file is damaged") from error


def _read_resolver(path: Path, session: Table) -> Resolver:
    try:
        return _resolver(session)
    except (KeyError, IndexError) as error:
        raise InputError(f"{path} cannot be read", why="the file is damaged") from error


def _parse_own_list(text: str, path: Path) -> OperatorList:
    """Parse what `write_list` wrote; its separators may occur in the names of a hostile file."""
    try:
        return parse_list(text)
    except (ValueError, AttributeError, TypeError) as error:
        raise InputError(
            f"{path} has operators that no build can name", fix="copy, download or convert it again"
        ) from error


def _read_list(path: Path) -> OperatorList:
    """Read the list of operators that a build would read."""
    try:
        return parse_list(path.read_text(encoding="utf-8"))
    except (ValueError, AttributeError, TypeError) as error:
        raise InputError(
            f"{path} is not a list of operators",
            why="its lines are not domain;opset;operators",
            fix="convert the model again, or write the list with --required-operators",
        ) from error


def _write(text: str, config: Path, paths: Sequence[Path]) -> None:
    if any(path.resolve() == config.resolve() for path in paths):
        raise UsageError(f"{config} is one of the models", fix="give --required-operators another path")
    with Staging(config, "--required-operators") as staging:
        staged = staging.folder / config.name
        with writing(config, "--required-operators"):
            staged.write_text(text, encoding="utf-8")
        staging.commit({staged: config})
        Staging.settled = False  # the list is no artefact: the command goes on


def _command(config: str, *, uses_ml: bool) -> str:
    """Return ONNX Runtime's build command (its page "Build a custom ONNX Runtime package")."""
    words = "./build.sh --config MinSizeRel --build_shared_lib --minimal_build --disable_exceptions".split()
    words += [] if uses_ml else ["--disable_ml_ops"]
    words += ["--include_ops_by_config", config, "--enable_reduced_operator_type_support", "--skip_tests"]
    return join(words)


def _count_kernels(nodes: Iterable[Use], resolvers: Sequence[Resolver]) -> Kernels | None:
    """Count the kernels that stay in the build.

    ONNX Runtime keeps those whose range of opsets has the opset of the list's line
    (tools/ci_build/reduce_op_kernels.py).
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    if not hasattr(state, "get_all_opkernel_def"):
        return None
    nodes = set(nodes)
    registered = [each for each in state.get_all_opkernel_def() if each.provider == "CPUExecutionProvider"]
    by_operator: dict[tuple[str, str], list[Use]] = {}
    for node in nodes:
        by_operator.setdefault((node.operator, node.domain), []).append(node)
    meanings = {name: args for resolver in resolvers for name, args in resolver.items()}
    kept = used = 0
    for kernel in registered:
        first, last = kernel.version_range
        same = by_operator.get((kernel.op_name, kernel.domain or ONNX), ())
        runs = [node for node in same if first <= node.version <= last]
        kept += bool(runs)
        used += any(_supports_types(kernel, node, meanings) for node in runs)
    return Kernels(version=onnxruntime.__version__, registered=len(registered), kept=kept, used=used)


def _supports_types(kernel: Any, node: Use, meanings: Resolver) -> bool:
    """Return whether the type constraints of the kernel allow the types of the operands."""
    domain = "" if node.domain == ONNX else node.domain
    places = meanings.get(f"{domain}:{node.operator}:{node.version}", {})
    for name, types in kernel.type_constraints.items():
        for is_output, index in places.get(name, ()):
            ends = node.outputs if is_output else node.inputs
            type_ = ends[index] if index < len(ends) else ""
            onnx_type = _ONNX_TYPES.get(type_) or type_.removesuffix("_t").lower()
            if type_ and f"tensor({onnx_type})" not in types:
                return False
    return True


def _resolver(session: Table) -> Resolver:
    def text(value: Any) -> str:
        return bytes(value).decode(errors="replace")

    def places(named: Table) -> tuple[tuple[bool, int], ...]:
        args = named.get("args", [])
        return tuple((bool(place.get("arg_type", 0)), place.get("index", 0)) for place in args)

    return {
        text(entry["op_id"]): {
            text(named["kernel_type_str"]): places(named) for named in entry.get("kernel_type_str_args", [])
        }
        for entry in session.get("resolver", {}).get("op_kernel_type_str_args", [])
    }


def _find_library_size(nodes: Iterable[Use]) -> LibrarySize:
    """Return published sizes that bound a build with these nodes; there are none per operator."""
    import yaml

    text = files("onnxport.inspection").joinpath("data/ort-build.yaml").read_text(encoding="utf-8")
    published: dict[str, Any] = yaml.safe_load(text)
    package = published["package"]
    operators = {(domain, name) for domain, names in package["operators"].items() for name in names.split()}
    types = {*package["types"].split(), *package["inner_types"].split(), ""}
    beyond: dict[str, None] = {}
    for node in nodes:
        if (node.domain, node.operator) not in operators:
            beyond[node.operator if node.domain == ONNX else f"{node.domain}::{node.operator}"] = None
        beyond |= dict.fromkeys(type_ for type_ in (*node.inputs, *node.outputs) if type_ not in types)
    rows = [published[name] for name in ("least", "package", "whole")]
    return LibrarySize(
        platform=published["platform"],
        least=published["least"]["bytes"],
        most=None if beyond else package["bytes"],
        whole=published["whole"]["bytes"],
        beyond=tuple(beyond),
        sources=tuple(dict.fromkeys(f"{row['source']} ({row['dated']})" for row in rows)),
    )
