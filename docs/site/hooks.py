"""What `make docs` adds: the keys of pipeline.yaml, notebooks as pages, links to files beside the docs folder."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import BaseModel

from onnxport import keyword_options
from onnxport.bench.params import BenchParams
from onnxport.converters.params import CoremlParams, OrtParams, TfliteParams
from onnxport.deployment.params import DeploymentParams
from onnxport.exporters.params import ExportParams
from onnxport.optimizers.params import ExtractParams, OptimizeParams
from onnxport.pipelines.config.json_schema import schema
from onnxport.profiling.params import ProfileParams
from onnxport.quantize.params import QuantizeParams
from onnxport.validate.debug.params import DebugParams
from onnxport.validate.params import SamplesParams, ValidateParams

_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)[^)]*\)")
_TABLE = re.compile(r"<table[^>]*>")
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
_NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
_KEYS = """# pipeline.yaml

Every key of a [pipeline](../guide/pipelines.md) file, made from the code. `onnxport schema` prints
the same as JSON Schema, for editors.
"""
# Part of the schema to its heading.
_SECTIONS = {
    "model": "A model",
    "stage": "A stage",
    "stage-optimize": "A stage with `use: optimize`",
    "stage-quantize": "A stage with `use: quantize`",
    "target": "A target",
    "target-tflite": "A target with `to: tflite`",
    "target-coreml": "A target with `to: coreml`",
    "target-ort": "A target with `to: ort`",
    "target-onnx": "A target with `to: onnx`",
    "proof": "Options of a proof",
}
# Function of onnxport to the types of its options, and the models that describe them.
_OPTIONS: dict[str, tuple[type, tuple[type[BaseModel], ...]]] = {
    "convert_model": (
        keyword_options.ConvertOptions,
        (TfliteParams, CoremlParams, OrtParams, ValidateParams, QuantizeParams),
    ),
    "quantize_model": (keyword_options.QuantizeOptions, (QuantizeParams, ValidateParams)),
    "optimize_model": (keyword_options.OptimizeOptions, (OptimizeParams, ValidateParams)),
    "extract_model": (keyword_options.ExtractOptions, (ExtractParams, ValidateParams)),
    "export_model": (keyword_options.ExportOptions, (ExportParams, ValidateParams)),
    "validate_model, assert_equivalent": (keyword_options.ValidateOptions, (ValidateParams,)),
    "debug_model": (keyword_options.DebugOptions, (DebugParams,)),
    "write_samples": (keyword_options.SamplesOptions, (SamplesParams,)),
    "bench_models": (keyword_options.BenchOptions, (BenchParams,)),
    "profile_model": (keyword_options.ProfileOptions, (ProfileParams,)),
    "inspect_deployment": (keyword_options.DeploymentOptions, (DeploymentParams,)),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of the keys of pipeline.yaml, and a page for each notebook."""
    files.append(File.generated(config, "reference/pipeline-yaml.md", content=_keys_page()))
    for path in sorted(_NOTEBOOKS.glob("*.ipynb")):
        name = f"notebooks/{path.stem.replace('_', '-')}.md"
        files.append(File.generated(config, name, content=_notebook_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Point links that leave the docs folder to the repository, or print the path where there is none to point to."""
    folder = posixpath.dirname(page.file.src_uri)

    def outside(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        if path.startswith("docs/"):
            return link[0]
        return (
            f"[{link[1]}]({config.repo_url}/blob/main/{path})" if config.repo_url else f"{link[1]} (`{path}`)"
        )

    return _LINK.sub(outside, markdown.replace("<!-- options -->", "\n".join(_options())))


def on_post_page(output: str, **_: Any) -> str:
    """Name what a screen reader finds without a name: the search, and corners of tables."""
    search = 'data-md-component="search" role="dialog"'
    return output.replace(search, f'{search} aria-label="Search"').replace("<th></th>", "<td></td>")


def _options() -> Iterator[str]:
    """Yield a table of options for each function."""
    for function, (types, models) in _OPTIONS.items():
        fields = {name: field for model in reversed(models) for name, field in model.model_fields.items()}
        yield f"\n### Options of {function}\n"
        yield "| option | |"
        yield "|---|---|"
        for name in get_type_hints(types):
            yield f"| `{name}` | {_escape(fields[name].description or '')} |"


def _notebook_page(path: Path) -> str:
    """Return a notebook with the outputs that it has, as Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in _cell(cell)]
    parts.insert(1, f"*The notebook: [{path.name}](../../examples/notebooks/{path.name}).*")
    return "\n\n".join(parts)


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        title, _, rest = source.partition("\n\n") if source.startswith("# ") else ("", "", source)
        yield from filter(None, (title, rest))
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "text/html" in data:
            # The theme scrolls tables without a class.
            yield _TABLE.sub("<table>", _STYLE.sub("", "".join(data["text/html"])))
        elif "text/markdown" in data:
            quoted = "".join(data["text/markdown"]).replace("\n#", "\n###").splitlines()
            yield "\n".join(f"> {line}" for line in ("", *quoted)).replace("> ## ", "> ### ")
        else:
            yield "```text\n" + "".join(data["text/plain"]).rstrip() + "\n```"


def _keys_page() -> str:
    document = json.loads(schema(plugins=False))
    parts = [_KEYS, *_table("The file", document)]
    for name, heading in _SECTIONS.items():
        parts += _table(heading, document["$defs"][name])
    return "\n".join(parts)


def _table(heading: str, section: dict[str, Any]) -> list[str]:
    keys = {**section.get("properties", {})}
    for form in section.get("anyOf", []):  # a mapping, or a text that stands for one
        keys |= form.get("properties", {})
    rows = [f"| `{key}` | {_default(value)} | {_meaning(value)} |" for key, value in keys.items()]
    return [f"\n## {heading}\n", "| key | default | |", "|---|---|---|", *rows] if rows else []


def _escape(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


def _default(value: dict[str, Any]) -> str:
    return f"`{json.dumps(value['default'])}`" if "default" in value else ""


def _meaning(value: dict[str, Any]) -> str:
    text = _escape(str(value.get("description", "")))
    choices = value.get("enum") or next(
        (form["enum"] for form in value.get("anyOf", []) if "enum" in form), []
    )
    return f"{text} One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else text
