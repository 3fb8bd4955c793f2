"""HTML pages that need no network: styles and drawings are inside, and there is no script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from onnxport.core.version import __version__
from onnxport.reports import charts, phrases

if TYPE_CHECKING:
    import jinja2


def render(template: str, styles: Sequence[str], **values: Any) -> str:
    """Fill in a template of this package with page.css and `styles`; its policy forbids scripts and requests."""
    css = "".join(map(_read, ("page.css", *styles)))
    return (
        _templates()
        .get_template(template)
        .render(
            version=__version__,
            css=css,
            # The policy allows the style by its hash.
            css_hash=base64.b64encode(hashlib.sha256(css.encode()).digest()).decode(),
            **values,
        )
    )


@cache
def _templates() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_readable,
    )
    environment.globals |= {"w": phrases, "charts": charts}
    return environment


def _readable(value: Any) -> Any:
    return phrases.text(value) if type(value) is str else value


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
