"""The form of a data file: what one runtime takes, with its source and date (docs/deployment.md, "Data files")."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, NamedTuple, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

Kind = Literal["provider", "engine", "delegate", "checker"]
# "loaded": what is left of the model when ONNX Runtime has loaded it, which is what its providers are asked about;
# "file": the graph as it is stored.
View = Literal["loaded", "file"]

_PACKAGE = "onnxport.deployment.data"


class Range(NamedTuple):
    """From least to most, both included; None where there is no limit."""

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


def _range(given: object) -> object:
    """A Range out of `4`, `3..4`, `..4` or `3..`."""
    if isinstance(given, int):
        return Range(given, given)
    if isinstance(given, str) and ".." in given:
        least, most = (text.strip() for text in given.split("..", 1))
        return Range(int(least) if least else None, int(most) if most else None)
    return given


AnyRange = Annotated[Range, BeforeValidator(_range)]
Words = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]


def _allowed(given: object) -> Range | tuple[Any, ...]:
    """What an attribute may be: a range of whole numbers, or one of several values."""
    if isinstance(given, str) and ".." in given:
        found = _range(given)
        assert isinstance(found, Range)
        return found
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


Allowed = Annotated[Range | tuple[Any, ...], PlainValidator(_allowed)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(_Record):
    """What is required of a node. Its tensors are named as ONNX's schema of the operator names parameters ("X") and
    types ("T"), by position ("0" is the first input, "out 0" the first output), or "inputs", "outputs" and "all".

    Attributes:
        version: of the operator: the opset that brought the form which the node has.
        types: element types that a tensor may have, as NumPy names them, or the name of one of the file's `sets`.
        ranks: numbers of dimensions that a tensor may have.
        constant: tensors that have to be initializers.
        static: tensors of which every dimension has to be known.
        attributes: what an attribute may be; of one that is a list every element. The schema's default counts where it
            is not given, and one without a default may be left out.
        inputs, outputs: how many there may be.
        conditions: predicates of `conditions.py`, by name, each with its argument.
    """

    version: AnyRange = Range()
    types: Mapping[str, Words] = {}
    ranks: Mapping[str, AnyRange] = {}
    constant: Words = ()
    static: Words = ()
    attributes: Mapping[str, Allowed] = {}
    inputs: AnyRange = Range()
    outputs: AnyRange = Range()
    conditions: Mapping[str, Any] = {}


def _rules(given: object) -> object:
    """One rule, several of which one has to hold, or none at all."""
    if given is None:
        return ({},)
    return given if isinstance(given, (list, tuple)) else (given,)


class Table(_Record):
    """A data file.

    Attributes:
        runtime: its word in `--runs-on`, which is the file's name.
        title: what it calls itself.
        version: of the runtime that this is true of.
        sources: where it stands: addresses of documents or source files, with the commit where there is one.
        dated: the day of the source, not the one on which it was read.
        view: which graph the runtime is asked about; "loaded" for providers unless given.
        fallback: who computes what it does not take; empty where it takes all or nothing.
        smallest: nodes that a group needs to be taken.
        bodies: whether nodes inside If, Loop and Scan are taken.
        folds: whether nodes that follow from constants and the inputs' sizes are computed before, whatever they are.
        opset: of ONNX's own domain that a model may have.
        every: required of all nodes, whatever the operator.
        sets: names for lists of element types that occur more than once.
        operators: "Conv" of ONNX's own domain, "com.microsoft::FusedConv" of another.
        notes: what a reader of the answer should know.
    """

    runtime: str
    title: str
    kind: Kind
    version: str
    sources: tuple[str, ...] = Field(min_length=1)
    dated: datetime.date
    view: View | None = None
    fallback: str = ""
    smallest: int = 1
    bodies: bool = True
    folds: bool = False
    opset: AnyRange = Range()
    every: Rule = Rule()
    sets: Mapping[str, tuple[str, ...]] = {}
    operators: Mapping[str, Annotated[tuple[Rule, ...], BeforeValidator(_rules)]]
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _conditions_are_known(self) -> Self:
        from onnxport.deployment.estimation.conditions import CONDITIONS

        rules = [self.every, *(rule for rules in self.operators.values() for rule in rules)]
        unknown = {name for rule in rules for name in rule.conditions if name not in CONDITIONS}
        if unknown:
            raise ValueError(f"no condition is called {', '.join(sorted(unknown))}")
        return self

    @property
    def sees(self) -> View:
        return self.view or ("loaded" if self.kind == "provider" else "file")

    def types(self, words: Sequence[str]) -> frozenset[str]:
        """The element types that `words` stand for."""
        return frozenset(each for word in words for each in self.sets.get(word, (word,)))


def has_table(runtime: str) -> bool:
    return bool(_file(runtime).is_file())


@cache
def load_table(runtime: str) -> Table:
    """The data file of a runtime that has one."""
    table = Table.model_validate(_parsed(_file(runtime).read_text(encoding="utf-8")))
    assert table.runtime == runtime, f"{runtime}.yaml is about {table.runtime}"
    return table


def _file(runtime: str) -> Any:
    return resources.files(_PACKAGE).joinpath(f"{runtime}.yaml")


def _parsed(text: str) -> Any:
    """The YAML's content; libyaml reads the large files in a tenth of the time, where PyYAML has it."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
