"""The user's own metrics: Python functions with a declared direction.

    @onnxport.metric(better="lower", unit="")
    def char_error_rate(reference: dict[str, ndarray], candidate: dict[str, ndarray]) -> float: ...

This module imports no array library.
"""

from __future__ import annotations

import importlib
import math
import operator
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from onnxport.core.child_process import RUN_TIMEOUT
from onnxport.core.errors import UsageError, printable
from onnxport.core.user_modules import current_directory_first
from onnxport.validate.report import Figure

if TYPE_CHECKING:
    from onnxport.core.arrays import Array

Function = Callable[[dict[str, "Array"], dict[str, "Array"]], float]
F = TypeVar("F", bound=Callable[..., Any])
Direction = Literal["higher", "lower"]

_DECLARED = "__onnxport_metric__"
_DECORATE = 'declare it with @onnxport.metric(better="higher") or (better="lower") above the function'


@dataclass(frozen=True)
class Declaration:
    """The direction and unit of a metric."""

    better: Direction
    unit: str


def metric(*, better: Direction, unit: str = "") -> Callable[[F], F]:
    """Declare a function as a metric for `--metric`.

    The function gets the reference's and the candidate's answers to one set of inputs, each a dict of output name to
    array in the reference's names, shapes and dtypes, and returns a number. The arrays are read-only.

    Args:
        better: "higher" or "lower": the good direction, and so whether a budget is the least or the most.
        unit: of the number, for reports; "" for shares.

    Raises:
        UsageError: another direction.

    Examples:
        >>> @onnxport.metric(better="lower")
        ... def gap(reference, candidate):
        ...     return float(abs(reference["logits"] - candidate["logits"]).max())
    """
    if better not in ("higher", "lower"):
        raise UsageError(
            f"a metric cannot be better {better!r}", fix='give better="higher" or better="lower"'
        )

    def declare(function: F) -> F:
        setattr(function, _DECLARED, Declaration(better, unit))
        return function

    return declare


@dataclass(frozen=True)
class UserMetric:
    """A loaded metric.

    Attributes:
        given: as the user wrote it, "mypkg.metrics:char_error_rate".
        name: the function's name, used in budgets and reports.
        timeout: seconds for one set.
    """

    given: str
    name: str
    function: Function
    declared: Declaration
    timeout: float = RUN_TIMEOUT

    def measure(self, label: str, reference: Mapping[str, Array], candidate: Mapping[str, Array]) -> float:
        """Return its value for the set of inputs `label`; UsageError for no value."""
        failed = f"the metric {self.given!r} failed on {label}"
        views = _read_only(reference), _read_only(candidate)
        value = _call(self.timeout, failed, lambda: self.function(*views))
        number = _as_float(value)
        if number is None or math.isnan(number):
            raise UsageError(
                f"the metric {self.given!r} gave {_describe(value)} on {label}",
                fix="return a number for every set",
            )
        return number


def load(given: Sequence[str], timeout: float = RUN_TIMEOUT) -> tuple[UserMetric, ...]:
    """Import metrics given as `package.module:function`, with the current directory first on the path.

    Raises:
        UsageError: one cannot be imported, is not a function, declares no direction, or has another's name.
    """
    found: dict[str, UserMetric] = {}
    for text in given:
        one = _load(text, timeout)
        if one.name in found and found[one.name].given != text:
            raise UsageError(
                f"two metrics are called {one.name!r}: {found[one.name].given} and {text}", fix="rename one"
            )
        found[one.name] = one
    return tuple(found.values())


def _load(text: str, timeout: float) -> UserMetric:
    module, separator, path = text.partition(":")
    if not (module and separator and path):
        raise UsageError(f"{text!r} names no metric", fix="write package.module:function")
    with current_directory_first():
        failed = f"the metric {text!r} cannot be imported"
        imported = _call(timeout, failed, lambda: importlib.import_module(module))
    try:
        function = operator.attrgetter(path)(imported)
    except AttributeError:
        place = getattr(imported, "__file__", None) or module
        raise UsageError(f"the metric {text!r} cannot be found", why=f"{place} has no {path!r}") from None
    if not callable(function):
        raise UsageError(f"the metric {text!r} is not a function", why=f"it is {_describe(function)}")
    declared = getattr(function, _DECLARED, None)
    if not isinstance(declared, Declaration):
        raise UsageError(f"the metric {text!r} has no direction", fix=_DECORATE)
    return UserMetric(text, path.rpartition(".")[2], function, declared, timeout)


def _call(seconds: float, failed: str, work: Callable[[], Any]) -> Any:
    """Run the user's code in `work` and return its result.

    It runs in a daemon thread, so there is a time limit, and a KeyboardInterrupt that it raises is no Ctrl-C. It prints
    to stderr, away from reports.

    Raises:
        UsageError: it raised anything or took too long.
    """
    ended: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((work(), None))
        except BaseException as error:
            ended.append((None, error))

    with redirect_stdout(sys.stderr), chdir(os.getcwd()):
        thread = threading.Thread(target=run, name="metric", daemon=True)
        thread.start()
        thread.join(seconds)
    if not ended:
        fix = "give it more time with --timeout SECONDS"
        raise UsageError(failed, why=f"it did not end within {seconds:g} s", fix=fix)
    ((value, error),) = ended
    if error is not None:
        raise UsageError(failed, why=_last_line(error)) from error
    return value


def _read_only(answers: Mapping[str, Array]) -> dict[str, Array]:
    views = {}
    for name, answer in answers.items():
        views[name] = answer.view()
        views[name].flags.writeable = False
    return views


def _as_float(value: object) -> float | None:
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # type: ignore[attr-defined]  # NumPy's scalars and arrays without axes
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _describe(value: object) -> str:
    number = _as_float(value)
    return f"a {type(value).__name__}" if number is None else f"{number}"


def _last_line(error: BaseException) -> str:
    """Return the type of an exception and the last line of its message."""
    try:
        lines = [printable(line) for line in str(error).strip().splitlines()]
    except Exception:  # its own __str__ failed
        lines = []
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


class Averages:
    """The user's metrics, averaged over sets of inputs."""

    def __init__(self, metrics: Sequence[UserMetric]) -> None:
        self._totals = dict.fromkeys(metrics, 0.0)
        self._sets = 0

    def add(self, label: str, reference: Mapping[str, Array], candidate: Mapping[str, Array]) -> None:
        """Measure one set; UsageError as UserMetric.measure."""
        self._sets += 1
        for each in self._totals:
            self._totals[each] += each.measure(label, reference, candidate)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The means; none before the first set."""
        if not self._sets:
            return ()
        return tuple(
            Figure(
                metric=each.name,
                value=total / self._sets,
                unit=each.declared.unit,
                better=each.declared.better,
            )
            for each, total in self._totals.items()
        )
