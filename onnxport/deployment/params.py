"""Parameters of a deployment report: command line options and keyword arguments are this one model.

A field's description is its help text. `inspect --help` imports this module, so it has to be light.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from onnxport.formats.input_shapes import Shapes

ALL = "all"
TIMEOUT = 120.0  # seconds; the slowest probe of a 30 MB model took a tenth of that


def _split_words(given: object) -> object:
    """Split "a,b", or several such texts, into words."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        return given
    words = [word.strip() for text in texts for word in text.split(",")]
    return tuple(dict.fromkeys(word for word in words if word))


class DeploymentParams(BaseModel):
    """Which runtimes are checked, and under which conditions."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    runs_on: Annotated[tuple[str, ...], BeforeValidator(_split_words)] = Field(
        default=(),
        description="Show which of these runtimes take the model, and which nodes fall back and why: names separated "
        "by commas, or all.",
        json_schema_extra={"metavar": "all|NAME,NAME"},
    )
    error_on_fallback: bool = Field(
        default=False, description="Fail (exit 1) unless every runtime of --runs-on takes the whole model."
    )
    shape: Shapes = Field(
        default={},
        description="Size of an input with open dimensions, as NAME=1,3,224,224; the answer is for these sizes.",
        json_schema_extra={"metavar": "NAME=DIMS"},
    )
    timeout: float = Field(
        default=TIMEOUT,
        gt=0,
        description="Time limit for each runtime, in seconds.",
        json_schema_extra={"metavar": "SECONDS"},
    )
