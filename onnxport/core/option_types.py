"""The base of all params models, and the types of options that several of them share.

A params model is the source of a command's options, its Python keywords and its YAML keys. Every `--help` imports these
models, which import no library but pydantic. A field's description is its help text.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from onnxport.core.memory import bytes_of


class Params(BaseModel):
    """The options of a stage or a command."""

    # Deferred: a --help imports the model and validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def option(description: str, *, metavar: str = "", **settings: Any) -> Any:
    """Return the pydantic Field of an option, as a default or inside Annotated.

    Args:
        metavar: what `--help` shows for the value.
        settings: further arguments of Field: default, bounds, exclude.
    """
    if metavar:
        settings["json_schema_extra"] = {"metavar": metavar}
    return Field(description=description, **settings)


def internal(description: str, **settings: Any) -> Any:
    """Return the Field of a value that is no option of the command line."""
    return Field(description=description, json_schema_extra={"option": False}, **settings)


def split_words(given: object) -> object:
    """Split `a,b`, or several of these, into words."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        return given
    words = [word.strip() for text in texts for word in text.split(",")]
    return tuple(dict.fromkeys(word for word in words if word))


# One text, or several.
Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]
Seed = Annotated[int, option("Seed of the generated inputs.", metavar="S", ge=0)]
Seconds = Annotated[
    float,
    option(
        "Maximum seconds for one run of a model.", metavar="SECONDS", gt=0, le=1_000_000, allow_inf_nan=False
    ),
]


def _check_size(text: str) -> str:
    bytes_of(text)
    return text


# A size in memory as the user wrote it, for errors and reports.
Size = Annotated[str, AfterValidator(_check_size)]
MemoryLimit = Annotated[Size | None, option("Maximum memory, as 800MB or 2GB.", metavar="SIZE")]
