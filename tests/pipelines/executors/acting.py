"""A stage that does what a test tells it, in whatever process it runs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel

from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.pipelines.executors.task import Task
from onnxport.pipelines.runner.jobs import Step
from onnxport.pipelines.stages import Product, Stage, Work, Worker

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"


class ActParams(BaseModel):
    """Attributes:
    does: a name in ACTS.
    log: gets a line per step: what, from when, to when.
    """

    does: str = "copy"
    log: Path | None = None
    seconds: float = 0.0


def _refuse(params: ActParams) -> None:
    raise CannotConvertError("no", refusals=[Refusal("Loop", "decode", "carries a sequence")])


def _bug(params: ActParams) -> None:
    raise ZeroDivisionError("on purpose")


def _unpicklable(params: ActParams) -> None:
    class Local(Exception):
        pass

    raise Local("of a class that nobody else knows")


def _crash(params: ActParams) -> None:
    ctypes.string_at(0)


def _killed_once(params: ActParams) -> None:
    assert params.log is not None
    with contextlib.suppress(FileExistsError):
        params.log.with_suffix(".killed").touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)


ACTS = {
    "copy": lambda params: None,
    "refuse": _refuse,
    "bug": _bug,
    "unpicklable": _unpicklable,
    "crash": _crash,
    "be killed once": _killed_once,
}


@contextmanager
def act() -> Iterator[Worker]:
    def make(model: Model, params: ActParams, work: Work) -> Product:
        with _logged(params, params.does):
            ACTS[params.does](params)
            time.sleep(params.seconds)
            artifact = model.save(work.output)
        if params.does == "copy" and params.log is not None and "timed" in params.log.name:
            with work.phases.phase("latency"), _logged(params, "timed"):
                time.sleep(0.2)
        return Product(artifact)

    yield make


@contextmanager
def _logged(params: ActParams, what: str) -> Iterator[None]:
    started = time.time()
    yield
    if params.log is not None:
        with params.log.open("a") as log:
            log.write(f"{what},{started},{time.time()}\n")


ACT = Stage(
    "act",
    ActParams,
    takes="onnx",
    gives="onnx",
    libraries=("onnx",),
    worker="tests.pipelines.executors.acting:act",
)


def task(folder: Path, name: str, **params: object) -> Task:
    """One that makes the digits model again in a room below `folder`."""
    room = folder / name
    room.mkdir()
    step = Step(ACT, ActParams.model_validate(params))
    return Task(name, Artifact.open(DIGITS), (step,), None, None, False, room)


def spans(log: Path) -> list[tuple[str, float, float]]:
    """What the log says, in the order of the beginnings."""
    rows = [line.split(",") for line in log.read_text().splitlines()]
    return sorted(((what, float(begun), float(ended)) for what, begun, ended in rows), key=lambda row: row[1])
