"""Builds the chain of steps for a stage or target of a model, each with its params and its proof."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from onnxport.core.errors import UsageError
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
from onnxport.pipelines.config.schema import StageSpec, TargetSpec, keys_of
from onnxport.pipelines.params import params_of, suggest
from onnxport.pipelines.runner.jobs import Step, proof_options, steps_to
from onnxport.quantize.params import calibrated_fields
from onnxport.validate.params import ValidateParams

_OF_THE_PROOF: Mapping[str, str] = dict.fromkeys(
    proof_fields(), "it is an option of the proof: put it under validate"
)


@dataclass(frozen=True)
class Link:
    """A step to run; `step` is None for the export, `validation` None for no proof, `place` that of its section."""

    name: str
    step: Step | None
    validation: ValidateParams | None
    place: Place

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
        at = (*place, "from")
        if name not in self.stages:
            self.options.faults.add(
                UsageError(f"there is no stage {name!r}", fix=self._stages_near(name)), *at
            )
            return None
        if name in below:
            way = " from ".join((*below[below.index(name) :], name))
            self.options.faults.add(
                UsageError(f"the stage takes its own result: {way}", fix="take another"), *at
            )
            return None
        spec = self.stages[name]
        if spec is None:
            return None
        own: Place = ("stages", name)
        before = self.to_stage(origin, spec.from_, own, (*below, name))
        asked = Request(
            name, own, Options.at(own, spec.options), self.options.proofs((*own, "validate"), spec.validate_)
        )
        return self._append_stage(origin, spec, asked, before)

    def to_target(
        self, origin: Origin, spec: TargetSpec, asked: Request, before: Chain | None
    ) -> Chain | None:
        """Append a target to `before`. Without `before`, only check the options."""
        with self.options.faults.catching(*asked.place, "to"):
            stage = registry.target(spec.to)
            purpose = f"converting to {spec.to}"
            fields = {**calibrated_fields(), **stage.params.model_fields}
            known = self.options.select_known(
                asked.options,
                stage.params,
                purpose=purpose,
                beside=keys_of(TargetSpec),
                further=calibrated_fields(),
                elsewhere=_OF_THE_PROOF,
            )
            options = self.options.fit(known, fields)
            given = self._add_preprocess(options, origin, asked)
            steps = self.options.fill(
                lambda values: steps_to(stage, values, purpose), given, asked.place, fields
            )
            return self._append(origin, asked, options, steps, before)
        return None

    def _append_stage(
        self, origin: Origin, spec: StageSpec, asked: Request, before: Chain | None
    ) -> Chain | None:
        with self.options.faults.catching(*asked.place, "use"):
            stage = registry.shared_stage(spec.use)
            purpose = f"the stage {spec.use}"
            known = self.options.select_known(
                asked.options,
                stage.params,
                purpose=purpose,
                beside=keys_of(StageSpec),
                elsewhere=_OF_THE_PROOF,
            )
            options = self.options.fit(known, stage.params.model_fields)
            given = self._add_preprocess(options, origin, asked)
            params = self.options.fill(
                lambda values: params_of(stage.params, values, purpose=purpose),
                given,
                asked.place,
                stage.params.model_fields,
            )
            steps = None if params is None else (Step(stage, params),)
            return self._append(origin, asked, options, steps, before)
        return None

    def _export(self, origin: Origin) -> Chain | None:
        if origin.export is None:
            return Chain()
        proof = self._proof((), self._proofs_of(origin, None), (*origin.place, "validate"))
        return (
            None
            if proof is None
            else Chain((Link(f"{origin.name}/export", None, proof.params, origin.place),))
        )

    def _append(
        self,
        origin: Origin,
        asked: Request,
        options: Options,
        steps: tuple[Step, ...] | None,
        before: Chain | None,
    ) -> Chain | None:
        """Append `steps` to `before`, each with its proof."""
        names = SHARED_CALIBRATING if "calib" in options.values else SHARED
        own = self.options.as_mappings(options.only(names))
        self._check_given_once(asked, own)
        if steps is None or before is None:
            return None
        shared = before.shared.overridden_by(own)
        told = self._proofs_of(origin, asked.proofs).with_shared(shared)
        links = list(before.links)
        for number, step in enumerate(steps):
            rooted = Step(step.stage, self.options.resolve_paths(step.params, options, asked.place))
            so_far = (*(link.step for link in links if link.step), rooted)
            proof = self._proof(so_far, told, (*asked.place, "validate"))
            if proof is None:
                return None
            is_last = number == len(steps) - 1
            name = f"{origin.name}/{asked.name}" + ("" if is_last else f"/{step.stage.name}")
            links.append(Link(name, rooted, proof.params, asked.place))
        return Chain(tuple(links), shared)

    def _proofs_of(self, origin: Origin, own: Proofs | None) -> Proofs:
        return self.proofs.overridden_by(origin.proofs).overridden_by(own)

    def _check_given_once(self, asked: Request, shared: Options) -> None:
        """Refuse an option that is given to the section and to its proof."""
        for name in shared.values:
            if asked.proofs is not None and name in asked.proofs.options.values:
                self.options.faults.add(
                    UsageError("the section itself gives this option to the proof", fix="keep the other one"),
                    *asked.proofs.options.places[name],
                )

    def _add_preprocess(self, options: Options, origin: Origin, asked: Request) -> Options:
        """Add the proof's preprocessing to a calibration, as on the command line."""
        told = self._proofs_of(origin, asked.proofs).options
        if "calib" in options.values and "preprocess" not in options.values:
            return options.overridden_by(told.only(("preprocess",)))
        return options

    def _proof(self, steps: tuple[Step, ...], told: Proofs, place: Place) -> _Proof | None:
        """Return the proof of the product of `steps`; None if its options are faulty."""
        if not told.wanted:
            return _Proof(None)
        asked = dict(told.options.values)
        if "inputs" in asked:
            asked["inputs"] = self.options.path(asked["inputs"])
        judged = proof_options(steps, asked)
        if judged.get("inputs") is None and told.options.places.get("preprocess", place)[:2] != place[:2]:
            judged.pop("preprocess", None)  # given for other proofs, which use images
        params = self.options.fill(
            lambda values: params_of(ValidateParams, values, purpose="the proof"),
            told.options.with_values(judged),
            place,
            ValidateParams.model_fields,
        )
        return None if params is None else _Proof(params)

    def _stages_near(self, name: str) -> str:
        return suggest(name, self.stages) if self.stages else "there are no stages"


@dataclass(frozen=True)
class _Proof:
    """The decision on a proof; `params` is None for no proof."""

    params: ValidateParams | None


def _values(params: BaseModel) -> dict[str, Any]:
    return {name: getattr(params, name) for name in type(params).model_fields}
