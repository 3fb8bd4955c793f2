"""The report as one HTML page that asks nothing of the network: styles and drawings inside, no script."""

from __future__ import annotations

import base64
import hashlib
import math
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from onnxport.core.version import __version__
from onnxport.reports import charts, facts, wording
from onnxport.reports.run_report import RunReport
from onnxport.validate.report import Diagnosis, LayerFigure

if TYPE_CHECKING:
    import jinja2

# What a page holds at most; a count says how much more there is, and the JSON report has it.
CAPS: Mapping[str, int] = {"outputs": 100, "fed": 30, "layers": 60, "worst": 16}


def view(report: RunReport) -> str:
    return page(
        "report.html.j2",
        ("report.css",),
        run=report,
        verdict=wording.verdict_of(report),
        command=shlex.join(("onnxport", report.command, *report.arguments)) if report.arguments else "",
        caps=CAPS,
    )


def page(template: str, styles: Sequence[str], **values: Any) -> str:
    """A template of this folder or below, filled in; it forbids itself every script and every request."""
    css = "".join(map(_file, styles))
    return (
        _templates()
        .get_template(template)
        .render(
            version=__version__,
            css=css,
            # The style is allowed by its hash.
            css_hash=base64.b64encode(hashlib.sha256(css.encode()).digest()).decode(),
            **values,
        )
    )


@cache
def _templates() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.globals |= _vocabulary()
    return environment


def _printable(value: Any) -> Any:
    return wording.text(value) if type(value) is str and not value.isprintable() else value


def _vocabulary() -> dict[str, Any]:
    """What the template may call."""
    return {
        "w": wording,
        "charts": charts,
        "facts": facts,
        "shown_layers": _shown_layers,
        "sum": sum,
    }


def _shown_layers(found: Diagnosis) -> tuple[list[tuple[LayerFigure, bool]], int]:
    """A diagnosis' values in the graph's order, and whether each is the one at fault; how many are left out.

    Where there are too many, those at fault and those with the lowest SQNR stay.
    """
    guilty = {ref.value for ref in (*found.candidates, found.node) if ref is not None}
    rows = [(layer, layer.node.value in guilty or charts.at_fault(layer)) for layer in found.layers]
    telling = sorted(range(len(rows)), key=lambda i: (not rows[i][1], _softness(rows[i][0])))
    shown, rest = wording.cut(telling, CAPS["layers"])
    return [rows[i] for i in sorted(shown)], rest


def _softness(layer: LayerFigure) -> float:
    sqnr = layer.sqnr_db
    return math.inf if sqnr is None or math.isnan(sqnr) else sqnr


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
