"""The options of a deployment report (`onnxport inspect --runs-on`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from onnxport.core.option_types import Params, option
from onnxport.runtimes.feeding_options import Shape

ALL = "all"
TIMEOUT = 120.0  # seconds; for a model of 30 MB the slowest runtime needed a tenth of that


def _words(given: object) -> object:
    """Split `a,b`, or several of these, into words."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        return given
    words = [word.strip() for text in texts for word in text.split(",")]
    return tuple(dict.fromkeys(word for word in words if word))


class DeploymentParams(Params):
    """The runtimes that are checked, and the conditions."""

    runs_on: Annotated[tuple[str, ...], BeforeValidator(_words)] = option(
        "Show which of these runtimes run the model, which nodes fall back, and why. Give names separated by commas, "
        "or all.",
        default=(),
        metavar="all|NAME,NAME",
    )
    error_on_fallback: bool = option(
        "Fail (exit 1) unless every runtime of --runs-on runs the whole model.", default=False
    )
    shape: Shape = option(
        "Size of an input with open dimensions, as NAME=1,3,224,224: the report is for these sizes.",
        default={},
    )
    timeout: float = option("Maximum seconds for one runtime.", default=TIMEOUT, metavar="SECONDS", gt=0)
