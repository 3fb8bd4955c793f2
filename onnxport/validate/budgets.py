"""The user's limits on metrics, and whether outputs meet them.

A limit is METRIC=VALUE, for every output that has the metric, or OUTPUT:METRIC=VALUE for one output, where it replaces
the former. ONNX names may contain ':' and '/', so the metric follows the last ':'.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.validate import custom_metrics
from onnxport.validate.custom_metrics import UserMetric
from onnxport.validate.metrics import METRICS
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Figure, Judgement, OutputReport

_SHARES = frozenset(("cosine", "top1_agreement", "top5_agreement", "mean_iou", "mismatch_share"))


@dataclass(frozen=True)
class Limit:
    """One limit.

    Attributes:
        output: None for all that have the metric.
        value: the least or the most that passes, by the metric's direction.
    """

    output: str | None
    metric: str
    value: float

    def __str__(self) -> str:
        return self.metric if self.output is None else f"{self.output}:{self.metric}"


class Budgets:
    """All limits of a run.

    Args:
        given: see ValidateParams.budget.
        user: the user's own metrics.

    Raises:
        UsageError: an unknown metric, a limit that is no number or above 1 for a share, a user's metric with a built-in
            one's name.
    """

    def __init__(self, given: Mapping[str, float], user: Sequence[UserMetric] = ()) -> None:
        for each in user:
            if each.name in METRICS:
                raise UsageError(f"the metric {each.given!r} has the name of a built-in one", fix="rename it")
        self.user = tuple(user)
        self._own = {each.name for each in user}
        self._limits = tuple(self._limit(text, value) for text, value in given.items())

    @classmethod
    def of(cls, params: ValidateParams) -> Self:
        """Make the user's budgets and import their metrics; UsageError as above and as custom_metrics.load.

        A budget may also import a metric, as package.module:function=VALUE.
        """
        given = {text.rpartition(":")[2] for text in params.metric} | set(METRICS)
        named = [text for text in params.budget if _is_function(text, given)]
        user = custom_metrics.load((*params.metric, *named), params.timeout)
        names = {each.given: each.name for each in user if each.given in named}
        return cls({names.get(text, text): value for text, value in params.budget.items()}, user)

    def __bool__(self) -> bool:
        return bool(self._limits)

    def _limit(self, text: str, value: float) -> Limit:
        output, separator, metric = text.rpartition(":")
        known = [*METRICS, *sorted(self._own)]
        if metric not in known:
            close = _nearest(metric, known)
            meant = f"did you mean {close!r}? " if close else ""
            raise UsageError(
                f"the budget {text!r} names no known metric", fix=f"{meant}metrics are {', '.join(known)}"
            )
        if math.isnan(value):
            raise UsageError(f"the budget {text!r} has the limit {value}", fix="give a number")
        if metric in _SHARES and value > 1:
            raise UsageError(
                f"the budget {text!r} has the limit {value:g}",
                why="the metric is a share, at most 1",
                fix=f"give {value / 100:g}" if 2 <= value <= 100 else "give less",
            )
        if separator and metric in self._own:
            raise UsageError(
                f"the budget {text!r} names an output",
                why=f"{metric!r} is a metric of all outputs together",
                fix=f"give {metric}",
            )
        return Limit(output if separator else None, metric, value)

    def check(self, outputs: Sequence[TensorSpec]) -> None:
        """Refuse limits that none of the reference's outputs can have (UsageError), before any run."""
        known = {spec.name: spec for spec in outputs}
        for limit in self._limits:
            if limit.output is not None and limit.output not in known:
                close = difflib.get_close_matches(limit.output, known, n=1)
                meant = f"did you mean {close[0]!r}? " if close else ""
                raise UsageError(
                    f"the model has no output {limit.output!r} for the budget '{limit}'",
                    fix=f"{meant}outputs are {', '.join(map(repr, known))}",
                )
            if limit.metric in self._own:
                continue
            meant_outputs = outputs if limit.output is None else [known[limit.output]]
            if not any(METRICS[limit.metric].may(spec) for spec in meant_outputs):
                raise _inapplicable(limit, outputs)

    def check_used(self, judgement: Judgement) -> None:
        """Refuse limits on figures that no output turned out to have (UsageError)."""
        found = {(output.name, figure.metric) for output in judgement.outputs for figure in output.figures}
        metrics = {metric for _, metric in found} | {figure.metric for figure in judgement.metrics}
        for limit in self._limits:
            if (
                limit.metric not in metrics
                if limit.output is None
                else (limit.output, limit.metric) not in found
            ):
                raise _inapplicable(limit, judgement.outputs)

    def on(self, figure: Figure, output: str | None) -> Figure:
        """Return the figure of an output, or of all together, with its limit and whether it meets it."""
        limits = [limit for limit in self._limits if limit.metric == figure.metric]
        own = [limit for limit in limits if limit.output == output]
        limit = next(iter(own or (limit for limit in limits if limit.output is None)), None)
        if limit is None:
            return figure
        met = figure.value >= limit.value if figure.better == "higher" else figure.value <= limit.value
        return figure.model_copy(update={"budget": limit.value, "met": met})


def check_limit(text: str, value: float, own: Collection[str] = ()) -> None:
    """Refuse a limit that cannot apply (UsageError), without running the user's code.

    Args:
        own: names of the user's metrics, whose limits are not known yet.
    """
    if text.rpartition(":")[2] not in own and not _is_function(text, METRICS):
        Budgets({text: value})


def _nearest(metric: str, known: Sequence[str]) -> str:
    """Return the metric that is meant: "top1" and "top-1" are the start of one; empty where none is near."""
    start = "".join(filter(str.isalnum, metric))
    starting = [name for name in known if start and name.startswith(start)]
    return next(iter(starting or difflib.get_close_matches(metric, known, n=1)), "")


def _is_function(text: str, known: Collection[str]) -> bool:
    """Return whether a budget names a function in a module, and not OUTPUT:METRIC with a known metric."""
    module, _, name = text.rpartition(":")
    dotted = "." in module and all(part.isidentifier() for part in module.split("."))
    return dotted and name.isidentifier() and name not in known


def apply_budgets(judgement: Judgement, budgets: Budgets) -> Judgement:
    """Return the judgement with the budgets in it: 'over budget' where one is not met.

    A verdict of 'not equivalent' stays, and so does one on a candidate without answers.

    Raises:
        UsageError: a budget on a metric that no output has.
    """
    if not budgets or not judgement.outputs:
        return judgement
    if judgement.verdict != "not equivalent":
        budgets.check_used(judgement)
    outputs = tuple(_apply_to_output(output, budgets) for output in judgement.outputs)
    metrics = tuple(budgets.on(figure, None) for figure in judgement.metrics)
    over = [
        *(f"{each.name!r}: {sentence(f)}" for each in outputs for f in each.figures if f.met is False),
        *(sentence(f) for f in metrics if f.met is False),
    ]
    update: dict[str, object] = {"outputs": outputs, "metrics": metrics}
    if over and judgement.verdict != "not equivalent":
        others = f" (and {len(over) - 1} more)" if len(over) > 1 else ""
        update |= {"verdict": "over budget", "reason": f"{over[0]}{others}"}
    elif judgement.verdict in ("proven", "measured"):
        update |= {"reason": f"{judgement.reason}; {_kept(outputs, metrics)}"}
    return judgement.model_copy(update=update)


def _kept(outputs: Sequence[OutputReport], metrics: Sequence[Figure]) -> str:
    """Return the budgets that are kept, each with its worst figure: "budget kept: sqnr 27.1 dB of at least 20"."""
    limits: dict[tuple[str, float], Figure] = {}
    for figure in (*(each for output in outputs for each in output.figures), *metrics):
        if figure.budget is None:
            continue
        sign = 1 if figure.better == "higher" else -1
        worst = limits.setdefault((figure.metric, figure.budget), figure)
        limits[figure.metric, figure.budget] = min(worst, figure, key=lambda each: sign * each.value)
    texts = [sentence(each, "{} of {}") for each in limits.values()]
    return f"budget kept: {', '.join(texts)}"


def _apply_to_output(output: OutputReport, budgets: Budgets) -> OutputReport:
    figures = tuple(budgets.on(figure, output.name) for figure in output.figures)
    update: dict[str, object] = {"figures": figures}
    over = [sentence(figure) for figure in figures if figure.met is False]
    if over and output.verdict != "not equivalent":
        update |= {"verdict": "over budget", "rule": "; ".join(over)}
    return output.model_copy(update=update)


def sentence(figure: Figure, form: str = "{}, the budget is {}") -> str:
    """Return a figure beside its budget: "top1_agreement 0.94, the budget is at least 0.98"."""
    assert figure.budget is not None
    bound = "at least" if figure.better == "higher" else "at most"
    value, limit = _distinct_texts(figure.value, figure.budget)
    unit = f" {figure.unit}" if figure.unit else ""
    return form.format(f"{figure.metric} {value}{unit}", f"{bound} {limit}{unit}")


def _distinct_texts(value: float, limit: float) -> tuple[str, str]:
    """Format two numbers with as many digits as make them differ, at least three."""
    for digits in range(3, 17):
        texts = f"{value:.{digits}g}", f"{limit:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def _inapplicable(limit: Limit, outputs: Sequence[TensorSpec | OutputReport]) -> UsageError:
    subject = "no output has" if limit.output is None else f"{limit.output!r} does not have"
    names = ", ".join(repr(output.name) for output in outputs)
    known = METRICS.get(limit.metric)
    return UsageError(
        f"{subject} the metric of the budget '{limit}'",
        why=f"{limit.metric} is for {known.applies}" if known else "",
        fix=f"the outputs are {names}",
    )
