"""The inputs of all rows: the user's own, or generated ones inside the domain that a graph implies.

They depend only on names, shapes and seed, so that rows with equal inputs get equal data. The batch is 1 by default.
Any other open size, which would decide the time, comes from the user or from an artefact that fixes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxport.bench.params import FeedingParams
from onnxport.bench.session import Feeding
from onnxport.core.arrays import Feeds
from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.formats.input_shapes import apply_shapes
from onnxport.formats.model import Model
from onnxport.samples.domain import Domain, declared_domains, domains, without_functions
from onnxport.samples.generator import KINDS, generate
from onnxport.samples.preprocessing import preprocessing
from onnxport.samples.readers import SampleFile, find_samples
from onnxport.samples.sizes import OpenSizes
from onnxport.samples.split import EVERYTHING
from onnxport.samples.states import find_states

Specs = Sequence[TensorSpec]


@dataclass(frozen=True)
class _GraphFacts:
    """Domains and states of inputs with these names, from a graph."""

    domains: Mapping[str, Domain]
    states: frozenset[str]


class Inputs:
    """Feeds for all rows of a bench; `graphs` imply the domains of inputs. UsageError if a given shape has a range."""

    def __init__(self, params: FeedingParams, graphs: Iterable[Model]) -> None:
        self._params = params
        self._graphs = {frozenset(spec.name for spec in graph.inputs): graph for graph in graphs}
        self._known: dict[frozenset[str], _GraphFacts] = {}
        self._fixed: dict[tuple[str, int], dict[int, int]] = {}
        for name, dims in params.shape.items():
            if ranged := [dim for dim in dims if isinstance(dim, str)]:
                raise UsageError(
                    f"--shape {name} has {ranged[0]!r}, but a row needs one size", fix="give a number"
                )

    @property
    def origin(self) -> str:
        """The origin of the inputs, for the report."""
        if self._params.inputs is None:
            return f"generated, seed {self._params.seed}"
        return f"the first of {self._params.inputs}"

    def resolve_sizes(self, models: Sequence[tuple[str, Specs]]) -> None:
        """Find a size for every dimension of the models' inputs that is not a batch.

        Args:
            models: paths and inputs of all models.

        Raises:
            UsageError: an open size was not given, or no model has the input of a given shape.
        """
        names = {spec.name for _, specs in models for spec in specs}
        if unknown := sorted(self._params.shape.keys() - names):
            fix = f"the inputs are {', '.join(map(repr, sorted(names)))}" if names else ""
            raise UsageError(f"--shape: no model has an input {unknown[0]!r}", fix=fix)
        self._fixed = _fixed_sizes(specs for _, specs in models)
        if self._params.inputs is not None:
            return
        for path, specs in models:
            try:
                lacking = OpenSizes(specs, self._shapes(specs)).untold
            except UsageError:  # a shape that contradicts this model: its row shows the error
                continue
            if lacking:
                raise _open_size_error(path, specs, lacking)

    def feeding(self, batch: int | None) -> Feeding:
        """Return a function that makes a model's inputs; `batch` is None for 1, or for that of the user's inputs."""
        return lambda specs: self._feeds(specs, batch)

    def compared(self, specs: Specs, batch: int | None, most: int) -> Iterator[Feeds]:
        """Yield up to `most` sets of inputs on which outputs are compared, one at a time.

        The user's sets are evenly spaced, because folders are often sorted; else there is a generated set of each kind.
        """
        shapes = self._shapes(specs)
        if self._params.inputs is not None:
            axes = OpenSizes(specs, shapes).batch_axes
            for file in _spread(self._find(specs, shapes, EVERYTHING), most):
                yield _fill_batch(file.load().feeds, axes, batch)
            return
        for index in range(min(most, len(KINDS))):
            yield self._generate(specs, shapes, batch, index)

    def batch_of(self, specs: Specs, feeds: Feeds) -> int | None:
        """Return the batch of `feeds`, where the model leaves it open."""
        axes = OpenSizes(specs, {spec.name: spec.shape for spec in specs}).batch_axes
        sizes = [feeds[name].shape[axis] for name, axis in axes.items() if name in feeds]
        return int(sizes[0]) if sizes else None

    def _feeds(self, specs: Specs, batch: int | None) -> Feeds:
        shapes = self._shapes(specs)
        axes = OpenSizes(specs, shapes).batch_axes
        if batch is not None and not axes:
            _check_batch(shapes, batch)
        if self._params.inputs is None:
            return self._generate(specs, shapes, batch, 0)
        (first,) = self._find(specs, shapes, 1)
        return _fill_batch(first.load().feeds, axes, batch)

    def _generate(
        self, specs: Specs, shapes: Mapping[str, tuple[Dim, ...]], batch: int | None, index: int
    ) -> Feeds:
        """Generate the inputs number `index`, which is also that of their kind."""
        sized = next(OpenSizes(specs, shapes).proposals(batch or 1))
        known = self._facts(specs)
        return generate(
            {spec.name: (spec, sized[spec.name]) for spec in specs},
            {spec.name: known.domains[spec.name] for spec in specs},
            kind=KINDS[index],
            seed=self._params.seed,
            index=index,
        )

    def _find(
        self, specs: Specs, shapes: Mapping[str, tuple[Dim, ...]], limit: int
    ) -> tuple[SampleFile, ...]:
        """Return the first `limit` of the user's sets."""
        folder = self._params.inputs
        assert folder is not None
        wanted = [TensorSpec(spec.name, spec.dtype, shapes[spec.name]) for spec in specs]
        settings = preprocessing(self._params.preprocess, folder)
        return find_samples(folder, wanted, limit, settings=settings, optional=self._facts(specs).states)

    def _shapes(self, specs: Specs) -> dict[str, tuple[Dim, ...]]:
        """Return the inputs' shapes with the sizes that the user gave, or that other models fix."""
        names = {spec.name for spec in specs}
        given = {name: dims for name, dims in self._params.shape.items() if name in names}
        shapes = apply_shapes(specs, given)
        for name, axes in OpenSizes(specs, shapes).untold.items():
            fixed = self._fixed.get((name, len(shapes[name])), {})
            if name not in given and any(axis in fixed for axis in axes):
                places = range(len(shapes[name]))
                given[name] = tuple(fixed.get(axis) if axis in axes else None for axis in places)
        return apply_shapes(specs, given)

    def _facts(self, specs: Specs) -> _GraphFacts:
        """What is known of these inputs: by the graph that has them, else by their names alone."""
        names = frozenset(spec.name for spec in specs)
        if names not in self._known:
            graph = next((graph for found, graph in self._graphs.items() if names <= found), None)
            self._known[names] = _graph_facts(graph, specs)
        return self._known[names]


def _fill_batch(feeds: Feeds, axes: Mapping[str, int], batch: int | None) -> Feeds:
    """Repeat the rows of `feeds` up to a batch; None keeps them."""
    if batch is None:
        return feeds
    repeated = {}
    for name, axis in ((name, axis) for name, axis in axes.items() if name in feeds):
        rows = np.arange(batch) % feeds[name].shape[axis]
        repeated[name] = np.asarray(np.take(feeds[name], rows, axis))
    return {**feeds, **repeated}


def _spread(files: Sequence[SampleFile], most: int) -> Iterator[SampleFile]:
    """Yield `most` of the files, evenly spaced, or all where there are fewer."""
    count = min(most, len(files))
    yield from (files[(2 * number + 1) * len(files) // (2 * count)] for number in range(count))


def _graph_facts(graph: Model | None, specs: Specs) -> _GraphFacts:
    if graph is None:
        return _GraphFacts(declared_domains(specs), frozenset())
    graph = without_functions(graph)
    known, states = domains(graph), find_states(graph, graph.inputs, graph.outputs)
    floats = {spec.name for spec in graph.inputs if spec.dtype.startswith("float")}
    initial = {name: Domain("state") for name in states if name in floats}
    return _GraphFacts({**known, **initial}, frozenset(states))


def _fixed_sizes(models: Iterable[Specs]) -> dict[tuple[str, int], dict[int, int]]:
    """Return, by input name and rank, the sizes of axes on which all models that fix one agree."""
    sizes: dict[tuple[str, int], dict[int, set[int]]] = {}
    for specs in models:
        for spec in specs:
            axes = sizes.setdefault((spec.name, len(spec.shape)), {})
            for axis, dim in enumerate(spec.shape):
                if isinstance(dim, int):
                    axes.setdefault(axis, set()).add(dim)
    return {
        key: {axis: next(iter(found)) for axis, found in axes.items() if len(found) == 1}
        for key, axes in sizes.items()
    }


def _open_size_error(path: str, specs: Specs, lacking: Mapping[str, Sequence[int]]) -> UsageError:
    known = {spec.name: spec for spec in specs}
    options = quote_option(
        "--shape",
        *(
            f"{name}={','.join(_dim_text(dim, axis in axes) for axis, dim in enumerate(known[name].shape))}"
            for name, axes in lacking.items()
        ),
    )
    listed = ", ".join(str(known[name]) for name in lacking)
    return UsageError(
        f"{path} has open sizes, which decide how long it runs: {listed}",
        fix=f"give sizes: {options}, or your own inputs: --inputs DIR",
    )


def _dim_text(dim: Dim, wanted: bool) -> str:
    return "SIZE" if wanted else str(dim) if isinstance(dim, int) else "?"


def _check_batch(shapes: Mapping[str, tuple[Dim, ...]], batch: int) -> None:
    """Refuse another batch than the fixed one (UsageError)."""
    firsts = {name: shape[0] for name, shape in shapes.items() if shape}
    if batch in firsts.values():
        return
    name, size = next(iter(firsts.items()), ("", None))
    fixed = f"its input {name!r} has the fixed size {size}" if name else "no input has a batch"
    raise UsageError(f"it cannot run at batch {batch}", why=fixed, fix="convert it with an open batch")
