"""Shape rules of models over tables (ai.onnx.ml), which know how many features they read."""

from __future__ import annotations

from collections.abc import Iterator

from onnxport.samples.shapes.analysis import Rule, Site
from onnxport.samples.shapes.fact import Fact, size


def _results(site: Site) -> Iterator[Fact]:
    """Yield the labels, where there are any, and the scores, whose number the attributes do not always say."""
    dims = site.dims(0)
    rows = dims[0] if dims and len(dims) == 2 else None
    if len(site.node.outputs) > 1:
        yield Fact((rows,))
    yield Fact((rows, None))


def _trees(site: Site) -> Iterator[Fact]:
    """ONNX Runtime reads beyond a row that is too short: an open width becomes the least that trees need."""
    dims, read = site.dims(0), site.integers("nodes_featureids")
    if dims and read:
        least = max(read) + 1
        if isinstance(dims[-1], str):
            site.equal(dims[-1], size(least), "")
        elif dims[-1] is not None:
            site.require(dims[-1] >= least, f"at least {least} features")
    yield from _results(site)


def _vectors(site: Site) -> Iterator[Fact]:
    dims, vectors = site.dims(0), site.node.attributes.get("support_vectors")
    count = site.integer("n_supports", 0) or sum(site.integers("vectors_per_class") or ())
    if dims and vectors is not None and count:
        site.equal(dims[-1], size(len(vectors.as_floats()) // count), "the features of its support vectors")
    yield from _results(site)


RULES: dict[str, Rule] = {
    "TreeEnsemble": _trees,
    "TreeEnsembleClassifier": _trees,
    "TreeEnsembleRegressor": _trees,
    "SVMClassifier": _vectors,
    "SVMRegressor": _vectors,
}
