"""The runtimes that are here, each asked in a process of its own.

A module of this package is named in `runtimes.RUNTIMES` and has

    def ask(path: Path, options: AskOptions) -> Placement

which runs in a child: it may import its library, print, crash or hang. It raises `NotHere` where the library lacks what
is asked about after all, and an OnnxportError for what a user should read of a model that the runtime does not take;
anything that it foresees as "takes it not" is a Placement with extent "none".
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxport.core.errors import OnnxportError
from onnxport.deployment.report import Placement
from onnxport.formats.input_shapes import GivenShape


class NotHere(OnnxportError):
    """The installed build lacks what is asked about: it is estimated, if it has a data file."""


@dataclass(frozen=True)
class AskOptions:
    """What an asker is told beside the model, in which the user's sizes are written already.

    Attributes:
        runtime: the word that it answers for; a module may answer for several.
        title: what the report calls it.
        provider: ONNX Runtime's name of it, if it has one.
        folder: for files on the way; it is removed afterwards.
        shared: for files that others can use who are asked about the same model, maybe at the same time.
        threads: kernel threads where something has to run.
        shapes: sizes that the user gave of the inputs, for one who is asked about the file as it is stored.
    """

    runtime: str
    title: str
    folder: Path
    shared: Path
    provider: str = ""
    threads: int = 1
    shapes: Mapping[str, GivenShape] = field(default_factory=dict)


class Asking:
    """The child's side (`isolation.Child`)."""

    def ask(self, asker: str, path: Path, options: AskOptions) -> Placement:
        module = importlib.import_module(asker)
        answer: Placement = module.ask(path, options)
        return answer
