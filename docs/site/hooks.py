"""What `make docs` adds to the pages: the keys of pipeline.yaml, and links to files beside the docs folder."""

from __future__ import annotations

import json
import posixpath
import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from onnxport.pipelines.config.json_schema import schema

_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)[^)]*\)")
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


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of the keys of pipeline.yaml."""
    files.append(File.generated(config, "reference/pipeline-yaml.md", content=_keys_page()))
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

    return _LINK.sub(outside, markdown)


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


def _default(value: dict[str, Any]) -> str:
    return f"`{json.dumps(value['default'])}`" if "default" in value else ""


def _meaning(value: dict[str, Any]) -> str:
    text = str(value.get("description", "")).replace("|", r"\|").replace("<", "&lt;")
    choices = value.get("enum") or next(
        (form["enum"] for form in value.get("anyOf", []) if "enum" in form), []
    )
    return f"{text} One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else text
