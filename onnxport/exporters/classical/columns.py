"""The columns that a fitted estimator takes: one tensor of all, or a tensor each where their types differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.exporters.classical.tabular import ROWS, Columns
from onnxport.formats.artifact import TensorSpec

# The name of the one tensor, as in skl2onnx's own examples.
_ONE = "X"


def find_columns(model: Any, given: Mapping[str, TensorSpec], *, float64: bool, source: str) -> Columns:
    """Return the columns of `model`: from --input where given, else from what it was fitted on.

    Raises UsageError if --input contradicts the estimator, or is needed and missing.
    """
    number = "float64" if float64 else "float32"
    names = tuple(str(name) for name in getattr(model, "feature_names_in_", ()))
    count = _count(model)
    if given:
        return _given_columns(given, names, count, source)
    read = dict(_first_step_columns(model, names, count))
    used = [name for name in names or map(str, range(count)) if name in read]
    dtypes = {name: read[name] or number for name in used}
    if len(set(dtypes.values())) > 1:
        if not names:
            dtypes = {f"x{name}": dtype for name, dtype in dtypes.items()}
        return Columns.each(dtypes)
    if not count:
        raise UsageError(
            f"the number of columns of {source} is unknown", fix="give --input X=1,COLUMNS:float32"
        )
    return Columns.one_tensor(_ONE, next(iter(dtypes.values()), number), count, names)


def _count(model: Any) -> int:
    """Return the number of columns it was fitted on; 1 for texts, 0 if unknown."""
    if is_text(model):
        return 1
    return int(getattr(model, "n_features_in_", 0) or 0)


def is_text(model: Any) -> bool:
    """Return whether the first step reads a sequence of texts instead of a table."""
    return hasattr(first_step(model), "vocabulary_")


def _given_columns(given: Mapping[str, TensorSpec], names: Sequence[str], count: int, source: str) -> Columns:
    for spec in given.values():
        if len(spec.shape) != 2:
            raise UsageError(
                f"--input {spec} has {len(spec.shape)} axes",
                why="a table has two, rows and columns",
                fix=f"write {quote_option('--input', f'{spec.name}=1,COLUMNS:float32')}",
            )
    width = sum(int(str(spec.shape[1])) for spec in given.values())
    if len(given) == 1:
        (spec,) = given.values()
        if count and width != count:
            raise UsageError(
                f"--input {spec.name} has {width} columns",
                why=f"{source} was fitted on {count}",
                fix=f"write {quote_option('--input', f'{spec.name}=1,{count}:{spec.dtype}')}",
            )
        return Columns.one_tensor(spec.name, spec.dtype, width, names)
    unknown = [name for name in given if names and name not in names]
    if unknown:
        raise UsageError(
            f"--input names {unknown[0]!r}, which is not a column of {source}",
            fix=f"it has {', '.join(names)}",
        )
    if not names and count != width:
        raise UsageError(f"--input gives {width} columns", why=f"{source} was fitted on {count}")
    return Columns(
        tuple(TensorSpec(spec.name, spec.dtype, (ROWS, spec.shape[1])) for spec in given.values()),
        tuple(given),
    )


def first_step(model: Any) -> Any:
    """Return the step that reads the table."""
    for attribute in ("best_estimator_", "estimator_"):
        if hasattr(model, attribute):
            return first_step(getattr(model, attribute))
    steps = [step for _, step in getattr(model, "steps", ()) if step not in (None, "passthrough")]
    return first_step(steps[0]) if steps else model


def _first_step_columns(model: Any, names: Sequence[str], count: int) -> Iterator[tuple[str, str]]:
    """Return name (or index, as text) and dtype of every column that is read; "" for a number."""
    first = first_step(model)
    known = list(names) or [str(place) for place in range(count)]
    if is_text(model):
        yield known[0] if known else "0", "string"
    elif hasattr(first, "transformers_"):
        yield from _transformer_columns(first, known)
    else:
        yield from zip(known, _dtypes_in(first, len(known)), strict=True)


def steps_by_column(model: Any, names: Sequence[str]) -> dict[str, tuple[Any, int]]:
    """Map a column's name to the step that reads it, and its position in that step."""
    first = first_step(model)
    if not hasattr(first, "transformers_"):
        return {name: (model, place) for place, name in enumerate(names)}
    known = [str(name) for name in getattr(model, "feature_names_in_", names)]
    found: dict[str, tuple[Any, int]] = {}
    for _, step, chosen in first.transformers_:
        if isinstance(step, str):
            continue
        for place, column in enumerate(positions(chosen, known)):
            name = known[column] if known[column] in names else f"x{column}"
            found.setdefault(name, (step, place))
    return found


def _transformer_columns(transformer: Any, known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return the columns of a ColumnTransformer; a column read several times has its non-numeric type."""
    found: dict[str, str] = {}
    for _, step, chosen in transformer.transformers_:
        if isinstance(step, str) and step == "drop":
            continue
        places = list(positions(chosen, known))
        dtypes = [""] * len(places) if isinstance(step, str) else _dtypes_in(first_step(step), len(places))
        for place, dtype in zip(places, dtypes, strict=True):
            found[known[place]] = found.get(known[place]) or dtype
    yield from found.items()


def positions(chosen: Any, known: Sequence[str]) -> Iterator[int]:
    """Return the positions of columns chosen by name, number, mask or slice."""
    if isinstance(chosen, (str, int)):
        chosen = [chosen]
    if isinstance(chosen, slice):
        chosen = list(range(len(known)))[_by_position(chosen, known)]
    chosen = list(chosen)
    if chosen and len(chosen) == len(known) and all(str(each) in ("True", "False") for each in chosen):
        chosen = [place for place, wanted in enumerate(chosen) if wanted]
    for each in chosen:
        yield known.index(each) if isinstance(each, str) else int(each) % len(known)


def _by_position(chosen: slice, known: Sequence[str]) -> slice:
    """Return a slice of columns by number; one of names includes its last."""
    begin = known.index(chosen.start) if isinstance(chosen.start, str) else chosen.start
    end = known.index(chosen.stop) + 1 if isinstance(chosen.stop, str) else chosen.stop
    return slice(begin, end, chosen.step)


def _dtypes_in(step: Any, count: int) -> list[str]:
    """Return the dtype of each column that `step` reads, from what it learned; "" for a number."""
    if is_text(step):
        return ["string"] * count
    categories = getattr(step, "categories_", None)
    if categories is not None:
        return [_dtype_of(each) for each in categories]
    learned = getattr(step, "statistics_", None)
    if learned is not None:
        return [_dtype_of([each]) for each in learned]
    return [""] * count


def _dtype_of(values: Any) -> str:
    if any(isinstance(each, str) for each in values):
        return "string"
    kind = getattr(getattr(values, "dtype", None), "kind", "f")
    return "int64" if kind in "iu" else "bool" if kind == "b" else ""
