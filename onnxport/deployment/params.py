"""The options of a deployment report (`onnxport inspect --runs-on`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from onnxport.core.option_types import Params, option, split_words
from onnxport.runtimes.feeding_options import Shape

ALL = "all"
TIMEOUT = 120.0  # seconds; for a model of 30 MB the slowest runtime needed a tenth of that


class DeploymentParams(Params):
    """The runtimes that are checked, and the conditions."""

    runs_on: Annotated[tuple[str, ...], BeforeValidator(split_words)] = option(
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
