"""Builds the chain of steps for a stage or target of a model, each with its params and its proof."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from onnxport.pipelines import registry
from onnxport.pipelines.config.document import Place
from onnxport.pipelines.config.models import Origin
from onnxport.pipelines.config.options import (
    SHARED,
    SHARED_CALIBRATING,
    Options,
    OptionsReader,
    Proofs,
    proof_fields,
)
from onnxport.pipelines.config.schema import Section, StageSpec, TargetSpec, keys_of
from onnxport.pipelines.params import params_of, suggest
from onnxport.pipelines.runner.jobs import Step, proof_options, steps_to
from onnxport.quantize.params import calibrated_fields
from onnxport.validate.params import ValidateParams

_OF_THE_PROOF: Mapping[str, str] = dict.fromkeys(
    proof_fields(), "it is an option of the proof: put it under validate"
)


@dataclass(frozen=True)
class Link:
    """A step to run; `step` is None for the export, `validation` None for no proof, `place` that of its section.

    `resources` say where it may run, and are no part of what it does.
    """

    name: str
    step: Step | None
    validation: ValidateParams | None
    place: Place
    resources: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def identity(self) -> str:
        """A text that is equal for links that do the same under different names."""
        stage = "export" if self.step is None else self.step.stage.name
        params = None if self.step is None else _values(self.step.params)
        proof = None if self.validation is None else _values(self.validation)
        return json.dumps([stage, params, proof], sort_keys=True, default=repr)


@dataclass(frozen=True)
class Chain:
    """Links from the model on, and their options that apply to the following proofs too."""

    links: tuple[Link, ...] = ()
    shared: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Request:
    """A stage or target of the file, with its own options (those of the matrix too) and proofs."""

    name: str
    place: Place
    options: Options
    proofs: Proofs | None
    resources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ChainReader:
    """Builds chains and collects their faults; faulty `stages` are None, `proofs` are those of the whole file."""

    options: OptionsReader
    stages: Mapping[str, StageSpec | None]
    proofs: Proofs

    def to_stage(
        self, origin: Origin, name: str | None, place: Place, below: tuple[str, ...] = ()
    ) -> Chain | None:
        """Return the chain up to the stage `name`, which the section at `place` takes; up to the export for None.

        `below` are the stages between here and the target.
        """
        if name is None:
            return self._export(origin)
        at, faults = (*place, "from"), self.options.faults
        if name not in self.stages:
            fix = suggest(name, self.stages) if self.stages else "there are no stages"
            faults.add(f"there is no stage {name!r}", *at, fix=fix)
            return None
        if name in below:
            way = " from ".join((*below[below.index(name) :], name))
            faults.add(f"the stage takes its own result: {way}", *at, fix="take another")
            return None
        spec = self.stages[name]
        if spec is None:
            return None
        own: Place = ("stages", name)
        before = self.to_stage(origin, spec.from_, own, (*below, name))
        proofs = self.options.proofs((*own, "validate"), spec.validate_)
        asked = Request(name, own, Options.at(own, spec.options), proofs, spec.resources)
        with faults.catching(*own, "use"):
            stage = registry.shared_stage(spec.use)
            purpose = f"the stage {spec.use}"

            def make(values: dict[str, Any]) -> tuple[Step, ...]:
                return (Step(stage, params_of(stage.params, values, purpose=purpose)),)

            return self._append(origin, asked, before, make, purpose, stage.params.model_fields, StageSpec)
        return None

    def to_target(
        self, origin: Origin, spec: TargetSpec, asked: Request, before: Chain | None
    ) -> Chain | None:
        """Append a target to `before`. Without `before`, only check the options."""
        with self.options.faults.catching(*asked.place, "to"):
            stage = registry.target(spec.to)
            purpose = f"converting to {spec.to}"
            fields = {**calibrated_fields(), **stage.params.model_fields}

            def make(values: dict[str, Any]) -> tuple[Step, ...]:
                return steps_to(stage, values, purpose)

            return self._append(origin, asked, before, make, purpose, fields, TargetSpec)
        return None

    def _append(
        self,
        origin: Origin,
        asked: Request,
        before: Chain | None,
        make: Callable[[dict[str, Any]], tuple[Step, ...]],
        purpose: str,
        fields: Mapping[str, FieldInfo],
        section: type[Section],
    ) -> Chain | None:
        """Append the steps that `make` returns for the options to `before`, each with its proof."""
        known = self.options.select_known(
            asked.options, fields, purpose=purpose, beside=keys_of(section), elsewhere=_OF_THE_PROOF
        )
        options = self.options.fit(known, fields)
        proofs = self.proofs.overridden_by(origin.proofs).overridden_by(asked.proofs)
        given = options
        if "calib" in options.values and "preprocess" not in options.values:  # as on the command line
            given = options.overridden_by(proofs.options.only(("preprocess",)))
        steps = self.options.fill(make, given, asked.place, fields)
        names = SHARED_CALIBRATING if "calib" in options.values else SHARED
        own = self.options.as_mappings(options.only(names))
        for name in own.values:
            if asked.proofs is not None and name in asked.proofs.options.values:
                what = "the section itself gives this option to the proof"
                place = asked.proofs.options.places[name]
                self.options.faults.add(what, *place, fix="keep the other one")
        if steps is None or before is None:
            return None
        shared = before.shared.overridden_by(own)
        links = list(before.links)
        for step in steps:
            rooted = Step(step.stage, self.options.resolve_paths(step.params, options, asked.place))
            name = f"{origin.name}/{asked.name}" + (f"/{step.stage.name}" if step is not steps[-1] else "")
            so_far = (*(link.step for link in links if link.step), rooted)
            link = self._link(name, rooted, so_far, proofs.with_shared(shared), asked.place)
            if link is None:
                return None
            links.append(replace(link, resources=asked.resources))
        return Chain(tuple(links), shared)

    def _export(self, origin: Origin) -> Chain | None:
        if origin.export is None:
            return Chain()
        proofs = self.proofs.overridden_by(origin.proofs)
        link = self._link(f"{origin.name}/export", None, (), proofs, origin.place)
        return None if link is None else Chain((link,))

    def _link(
        self, name: str, step: Step | None, so_far: tuple[Step, ...], proofs: Proofs, place: Place
    ) -> Link | None:
        """Return the last of the steps `so_far` with its proof; None if the options of that are faulty."""
        if not proofs.wanted:
            return Link(name, step, None, place)
        asked, at = dict(proofs.options.values), (*place, "validate")
        if "inputs" in asked:
            asked["inputs"] = self.options.path(asked["inputs"])
        judged = proof_options(so_far, asked)
        if judged.get("inputs") is None and proofs.options.places.get("preprocess", at)[:2] != at[:2]:
            judged.pop("preprocess", None)  # given for other proofs, which use images
        options, fields = proofs.options.with_values(judged), ValidateParams.model_fields
        validation = self.options.fill(
            lambda values: params_of(ValidateParams, values, purpose="the proof"), options, at, fields
        )
        return None if validation is None else Link(name, step, validation, place)


def _values(params: BaseModel) -> dict[str, Any]:
    return {name: getattr(params, name) for name in type(params).model_fields}
