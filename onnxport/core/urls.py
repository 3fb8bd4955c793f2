"""URLs, and the names that users see in place of local copies: without passwords and tokens."""

from __future__ import annotations

import html
import re
from urllib.parse import quote, urlsplit

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_WEB = re.compile(r"https?://[^\s'\"<>]+")
_USER = re.compile(r"(?<=://)[^\s/'\"<>@]+@")
# Characters that stay in a URL that is shown: none of them means anything in HTML, XML, JSON or a shell.
_SAFE = "/:@!+,=~-._%"
# Text of this process -> what users see. Folders of copies stand for the URL of the folder.
_names: dict[str, str] = {}


def is_url(given: object) -> bool:
    """Return whether `given` is a text with a scheme, as s3://bucket/model.onnx."""
    return isinstance(given, str) and _URL.match(given) is not None


def without_secrets(url: str) -> str:
    """Return a URL as users may see it: without a user and a password, of the web without query and fragment."""
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        path = parts.path
    else:
        path = url.partition("://")[2].partition("#sha256=")[0].removeprefix(parts.netloc)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{quote(path, safe=_SAFE)}"


def name_as(private: str, shown: str) -> None:
    """Show `private`, a folder of copies or a URL with secrets, as `shown` from now on."""
    for text in {private, html.escape(private), html.escape(private, quote=False)}:
        if text != shown:
            _names[text] = shown


def shown(text: str) -> str:
    """Return text for users: with URLs in place of local copies, and without passwords in URLs."""
    for private, name in sorted(_names.copy().items(), key=lambda pair: -len(pair[0])):
        text = text.replace(private, name)
    return _USER.sub("", text) if "@" in text else text


def without_queries(word: str) -> str:
    """Return a word of a command line without passwords, and without queries and fragments of the web."""
    return _USER.sub("", _WEB.sub(lambda found: without_secrets(found[0]), word))
