"""The schema of a data file: what one runtime takes, with source and date (docs/guide/deployment.md, "Data files")."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, NamedTuple, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from onnxport.deployment.report import Placement

Kind = Literal["provider", "engine", "delegate", "checker"]
# "loaded": the graph after ONNX Runtime has loaded it, which its providers get; "file": the graph as it is stored.
View = Literal["loaded", "file"]

_PACKAGE = "onnxport.deployment.data"


class Range(NamedTuple):
    """A range with both ends included; None is no limit."""

    least: int | None = None
    most: int | None = None

    def __contains__(self, number: object) -> bool:
        return (
            isinstance(number, int)
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
        )

    def __str__(self) -> str:
        if self.least == self.most:
            return f"only {self.most}"
        if self.least is None:
            return f"at most {self.most}"
        return f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"


def _parse_range(given: object) -> object:
    """Parse `4`, `3..4`, `..4` or `3..` as a Range."""
    if isinstance(given, int):
        return Range(given, given)
    if isinstance(given, str) and ".." in given:
        least, most = (text.strip() for text in given.split("..", 1))
        return Range(int(least) if least else None, int(most) if most else None)
    return given


AnyRange = Annotated[Range, BeforeValidator(_parse_range)]
Words = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]


def _parse_allowed(given: object) -> Range | tuple[Any, ...]:
    """Parse what an attribute may be: a range of integers, or one of several values."""
    if isinstance(given, str) and ".." in given:
        found = _parse_range(given)
        assert isinstance(found, Range)
        return found
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


Allowed = Annotated[Range | tuple[Any, ...], PlainValidator(_parse_allowed)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(_Record):
    """The requirements of a node.

    Tensors are named by the operator's schema, as parameters ("X") or types ("T"), by position ("0" is the first input,
    "out 0" the first output), or as "inputs", "outputs" and "all".
    """

    version: AnyRange = Range()  # of the operator: the opset that introduced the node's form
    # Element types that a tensor may have, by NumPy's names or the name of one of the file's `sets`.
    types: Mapping[str, Words] = {}
    ranks: Mapping[str, AnyRange] = {}  # the numbers of dimensions that a tensor may have
    constant: Words = ()  # tensors that have to be initializers
    static: Words = ()  # tensors whose dimensions all have to be known
    # Allowed values; for a list, of every element. The schema's default counts for an absent attribute; one
    # without a default may be absent.
    attributes: Mapping[str, Allowed] = {}
    # inputs, outputs: how many there may be.
    inputs: AnyRange = Range()
    outputs: AnyRange = Range()
    conditions: Mapping[str, Any] = {}  # predicates of `conditions.py`, by name, each with its argument


def _parse_rules(given: object) -> object:
    """Accept one rule, several of which one has to hold, or none."""
    if given is None:
        return ({},)
    return given if isinstance(given, (list, tuple)) else (given,)


class Table(_Record):
    """A data file."""

    runtime: str  # its word in `--runs-on`, which is the file's name
    title: str  # the runtime's own name
    kind: Kind
    version: str  # of the runtime that the file describes
    # Addresses of documents or source files, with the commit if there is one.
    sources: tuple[str, ...] = Field(min_length=1)
    dated: datetime.date  # the day of the source, not the day on which it was read
    view: View | None = None  # the graph that the runtime gets; "loaded" for providers unless given
    fallback: str = ""  # the runtime that computes the rest; empty for one that takes all or nothing
    smallest: int = 1  # the number of nodes that a group needs to be taken
    bodies: bool = True  # whether nodes inside If, Loop and Scan are taken
    # Whether the runtime computes all that follows from constants and the inputs' sizes beforehand.
    folds: bool = False
    opset: AnyRange = Range()  # the opsets of ONNX's own domain that a model may have
    every: Rule = Rule()  # the requirements of all nodes
    sets: Mapping[str, tuple[str, ...]] = {}  # names for lists of element types
    # "Conv" of ONNX's own domain, "com.microsoft::FusedConv" of another.
    operators: Mapping[str, Annotated[tuple[Rule, ...], BeforeValidator(_parse_rules)]]
    notes: tuple[str, ...] = ()  # shown with the answer

    @model_validator(mode="after")
    def _conditions_are_known(self) -> Self:
        from onnxport.deployment.estimation.conditions import CONDITIONS

        rules = [self.every, *(rule for rules in self.operators.values() for rule in rules)]
        unknown = {name for rule in rules for name in rule.conditions if name not in CONDITIONS}
        if unknown:
            raise ValueError(f"no condition is called {', '.join(sorted(unknown))}")
        return self

    @property
    def graph_view(self) -> View:
        return self.view or ("loaded" if self.kind == "provider" else "file")

    def placement(self, runtime: str = "", title: str = "") -> Placement:
        """Return the placement that an estimate fills in."""
        return Placement(
            runtime=runtime or self.runtime,
            title=title or self.title,
            how="estimated",
            extent="none",
            version=self.version,
            source=self.sources[0],
            dated=self.dated.isoformat(),
            notes=self.notes,
        )

    def types(self, words: Sequence[str]) -> frozenset[str]:
        """Return the element types that `words` stand for."""
        return frozenset(each for word in words for each in self.sets.get(word, (word,)))


def has_table(runtime: str) -> bool:
    return bool(_file(runtime).is_file())


@cache
def load_table(runtime: str) -> Table:
    """Load the data file of a runtime that has one."""
    # libyaml is ten times as fast.
    text, loader = _file(runtime).read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    table = Table.model_validate(yaml.load(text, Loader=loader))
    assert table.runtime == runtime, f"{runtime}.yaml is about {table.runtime}"
    return table


def _file(runtime: str) -> Any:
    return resources.files(_PACKAGE).joinpath(f"{runtime}.yaml")
