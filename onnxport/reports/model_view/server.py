"""A page with Netron for each model, beside each other, and findings below; on the loopback address alone.

Netron's own server is not used: its pages ask other machines for the country and send usage data, and it serves the
whole folder of a model. Here a page may only load from this server, and only the model's own files are served.
"""

from __future__ import annotations

import abc
import html
import http.server
import importlib.util
import mimetypes
import re
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxport.core.errors import MachineError, MissingDependencyError
from onnxport.formats.artifact import Artifact
from onnxport.reports.model_view.graphs import read_graphs
from onnxport.reports.model_view.overlays import Overlay, Value, precision

ADDRESS = "127.0.0.1"
_MOST = 30  # rows of a finding
_POLICY = "default-src 'self' 'unsafe-inline' data: blob:; connect-src 'self'; form-action 'none'"
# Netron sends usage data and asks for consent and updates unless the page says that it is not a released one.
_META = '<meta name="type" content="Python"><meta name="version" content="0.0.0"><meta name="file" content="{file}">'
_VERSION = re.compile(r'<meta name="version" content="[^"]*">')
_DATE = re.compile(r'<meta name="date" content="[^"]*">')
_TYPES = frozenset((".html", ".js", ".css", ".png", ".ico", ".json"))
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ margin: 0; font: 14px system-ui, sans-serif; color: #1b1b1f; background: #fff }}
main {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)) }}
section {{ border-right: 1px solid #ccc; min-width: 0 }} h1 {{ font-size: 1rem; margin: .5rem 1rem }}
iframe {{ width: 100%; height: 75vh; border: 0; border-top: 1px solid #ccc; border-bottom: 1px solid #ccc }}
details {{ margin: .5rem 1rem }} table {{ border-collapse: collapse }} td {{ padding: .1rem .8rem .1rem 0 }}
td:last-child {{ font-variant-numeric: tabular-nums }}
</style></head><body><main>{sections}</main></body></html>"""


def netron_folder() -> Path:
    """Return the folder of Netron's pages; MissingDependencyError if it is not installed."""
    found = importlib.util.find_spec("netron")
    if found is None or found.origin is None:
        raise MissingDependencyError(
            "Netron is not installed", fix=f"run: {sys.executable} -m pip install 'onnxport[view]'"
        )
    return Path(found.origin).parent


def open_server(
    models: Sequence[Artifact], overlays: Sequence[Overlay], port: int = 0
) -> http.server.ThreadingHTTPServer:
    """Return a server of the page; `serve_forever` runs it.

    Args:
        port: of the loopback address; 0 for a free one.

    Raises:
        MissingDependencyError: Netron is not installed.
        InputError: a model is damaged.
        MachineError: the port is in use.
    """
    pages, files = _pages(models, overlays), _files(models)
    netron = netron_folder()

    class Handler(_Handler):
        def content(self, path: str) -> tuple[bytes, str] | None:
            if path in pages:
                return pages[path].encode(), "text/html"
            if path in files:
                return files[path].read_bytes(), "application/octet-stream"
            return _netron_file(netron, path)

    try:
        return http.server.ThreadingHTTPServer((ADDRESS, port), Handler)
    except OSError as error:
        raise MachineError(
            f"port {port} cannot be used", why=error.strerror or str(error), fix="leave --port out"
        ) from error


class _Handler(abc.ABC, http.server.BaseHTTPRequestHandler):
    @abc.abstractmethod
    def content(self, path: str) -> tuple[bytes, str] | None:
        """Return a file's bytes and media type; None for one that is not served."""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0]
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        # Another name in Host is a page of another machine whose name now leads here (DNS rebinding).
        found = self.content(path) if host in (ADDRESS, "localhost") else None
        self.send_response(404 if found is None else 200)
        data, kind = found or (b"not here\n", "text/plain")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header(
            "Set-Cookie", "consent=0; Path=/; SameSite=Strict"
        )  # nothing is sent, so nothing is asked
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print no line for each request."""


def _files(models: Sequence[Artifact]) -> dict[str, Path]:
    """Return the files of all models by their paths on the server."""
    found = {}
    for number, model in enumerate(models):
        base = model.path if model.is_folder else model.path.parent
        for file in model.files:
            found[f"/{number}/data/{file.relative_to(base).as_posix()}"] = file
    return found


def _main_file(model: Artifact) -> str:
    """Return the path of the file that Netron opens, below the model's folder."""
    if not model.is_folder:
        return model.path.name
    return next(each.relative_to(model.path).as_posix() for each in model.files if each.suffix == ".mlmodel")


def _pages(models: Sequence[Artifact], overlays: Sequence[Overlay]) -> dict[str, str]:
    index = (netron_folder() / "index.html").read_text(encoding="utf-8")
    pages, sections = {}, []
    for number, model in enumerate(models):
        meta = _META.format(file=html.escape(f"data/{urllib.parse.quote(_main_file(model))}", quote=True))
        before, after = _VERSION.split(_DATE.sub("", index), maxsplit=1)
        pages[f"/{number}/"] = f"{before}{meta}{after}"
        name = html.escape(model.path.name)
        frame = f'<iframe src="/{number}/" title="{name}"></iframe>'
        sections.append(f"<section><h1>{name}</h1>{frame}{_findings(model, overlays)}</section>")
    title = html.escape(", ".join(model.path.name for model in models))
    pages["/"] = _PAGE.format(title=title, sections="".join(sections))
    return pages


def _findings(model: Artifact, overlays: Sequence[Overlay]) -> str:
    if model.format == "coreml":
        return ""
    graphs = read_graphs(model)
    parts = []
    for overlay in (*filter(lambda each: each.concerns(model), overlays), precision(graphs)):
        values = {key: value for viewed in graphs for key, value in overlay.of(viewed).items()}
        if values:
            rows = "".join(
                f"<tr><td>{html.escape(key)}</td><td>{html.escape(_text(value))}</td></tr>"
                for key, value in _largest(values)
            )
            more = f"<p>and {len(values) - _MOST} more</p>" if len(values) > _MOST else ""
            parts.append(
                f"<details><summary>{html.escape(overlay.name)}</summary><table>{rows}</table>{more}</details>"
            )
    return "".join(parts)


def _largest(values: Mapping[str, Value]) -> list[tuple[str, Value]]:
    """Return numbers from the largest on, texts in the order of the graph."""
    ranked = sorted(values.items(), key=lambda each: -each[1] if isinstance(each[1], float) else 0.0)
    return ranked[:_MOST]


def _text(value: Value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else value


def _netron_file(folder: Path, path: str) -> tuple[bytes, str] | None:
    """Return a file of Netron's pages, which lie flat in its folder."""
    name = path.rpartition("/")[2]
    file = folder / name
    if not re.fullmatch(r"/\d+/[\w.-]+", path) or file.suffix not in _TYPES or not file.is_file():
        return None
    return file.read_bytes(), mimetypes.guess_type(name)[0] or "application/octet-stream"
