"""A headless browser: the content and look of a page, its requests, and its console messages.

Debian's package `chromium`, which .ci/run installs. Without one, tests that need it are skipped, and fail in CI.
"""

from __future__ import annotations

import contextlib
import functools
import html
import http.server
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless",
    "--no-sandbox",  # it refuses to run as root, which CI machines do, with one
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    # Whatever asks for another machine fails, and says so.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)

_PHONE = 400  # pixels


@dataclass(frozen=True)
class Visit:
    """What came of opening a page: what Chromium printed, and the lines of the page's console."""

    stdout: str
    console: list[str] = field(default_factory=list)


def find() -> str:
    """The browser's command; without one the test ends here."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    missing = f"no browser ({', '.join(_NAMES)}); on Debian: apt-get install --no-install-recommends chromium"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def visit(url: str, *options: str) -> Visit:
    """Opens `url` in a fresh profile."""
    with tempfile.TemporaryDirectory() as profile:
        command = [find(), *_OPTIONS, f"--user-data-dir={profile}", *options, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return Visit(done.stdout, re.findall(r":CONSOLE[:(].*", done.stderr))


def dom(url: str) -> Visit:
    """The page as it stands after it was loaded."""
    return visit(url, "--dump-dom")


def screenshot(url: str, target: Path, width: int, height: int) -> None:
    visit(url, f"--screenshot={target}", f"--window-size={width},{height}")


@dataclass(frozen=True)
class Site:
    """A folder served on this machine, and the paths that were asked for, in order."""

    folder: Path
    address: str
    asked: list[str]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Site]:
    """Serves `folder` over HTTP on this machine only."""
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Site(folder, f"http://127.0.0.1:{server.server_port}", asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# Reads pages in frames of one width; the pages' own scripts are forbidden, this one outside is not.
_PROBE = """<!doctype html><meta charset="utf-8"><title>probe</title><link rel="icon" href="data:,">
{frames}
<script>
function wide(page) {{
  return [...page.body.querySelectorAll("*")]
    .filter(e => !e.closest(".scroll > *") && e.getBoundingClientRect().right > {width} + 0.5)
    .map(e => e.tagName + "." + e.getAttribute("class") + ": " + e.textContent.slice(0, 40));
}}
window.onload = function () {{
  const found = {{}};
  for (const frame of document.querySelectorAll("iframe")) {{
    const page = frame.contentDocument, root = page.documentElement;
    for (const details of page.querySelectorAll("details")) details.open = true;
    found[frame.name] = {{ scroll: root.scrollWidth, shown: root.clientWidth, wide: wide(page).slice(0, 5) }};
  }}
  const shown = document.createElement("pre");
  shown.id = "found";
  shown.textContent = JSON.stringify(found);
  document.body.append(shown);
}};
</script>"""


def probe(site: Site, pages: Sequence[str], width: int) -> Visit:
    """Opens the site's pages in frames of `width` pixels, with every <details> open: a browser is slow to start."""
    frames = (
        f'<iframe name="{page}" width="{width}" height="800" src="{page}.html"></iframe>' for page in pages
    )
    (site.folder / "probe.html").write_text(_PROBE.format(width=width, frames="\n".join(frames)), "utf-8")
    site.asked.clear()
    return dom(f"{site.address}/probe.html")


def measured(visit: Visit) -> Any:
    """What the probe found, page by page: how wide it is, and what sticks out."""
    found = re.search(r'<pre id="found">(.*?)</pre>', visit.stdout, re.DOTALL)
    assert found is not None
    return json.loads(html.unescape(found.group(1)))


def check_on_a_phone(folder: Path, pages: Mapping[str, str]) -> None:
    """Asserts that `pages`, by name, fit a phone, complain of nothing and ask for nothing."""
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    with serving(folder) as site:
        visit = probe(site, list(pages), _PHONE)
        assert visit.console == []
        assert sorted(site.asked) == sorted(["/probe.html", *(f"/{page}.html" for page in pages)])
    assert measured(visit) == {page: {"scroll": _PHONE, "shown": _PHONE, "wide": []} for page in pages}


def pixels(file: Path) -> list[bytearray]:
    """The rows of a PNG of 8 bits a channel, as RGB or RGBA bytes (PNG specification, section 9: filters)."""
    data, at, packed, header = file.read_bytes(), 8, b"", b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        header, packed = (body, packed) if kind == b"IHDR" else (header, packed + body * (kind == b"IDAT"))
        at += 12 + length
    width, _, depth, colour = struct.unpack(">IIBB", header[:10])
    assert depth == 8
    step = {2: 3, 6: 4}[colour]
    raw, stride, rows = zlib.decompress(packed), width * step, []
    above = bytearray(stride)
    for start in range(0, len(raw), stride + 1):
        above = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), above, step)
        rows.append(above)
    return rows


def _unfiltered(kind: int, row: bytearray, above: bytearray, step: int) -> bytearray:
    for i in range(len(row)):
        left, up = (row[i - step] if i >= step else 0), above[i]
        corner = above[i - step] if i >= step else 0
        guess = (0, left, up, (left + up) // 2, _paeth(left, up, corner))[kind]
        row[i] = (row[i] + guess) & 255
    return row


def _paeth(left: int, up: int, corner: int) -> int:
    return min((left, up, corner), key=lambda value: abs(left + up - corner - value))
