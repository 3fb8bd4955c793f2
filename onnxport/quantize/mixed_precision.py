"""Plans in which a budget search gives some nodes a higher precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnxport.formats.model import Model
from onnxport.optimizers.opset import lift
from onnxport.quantize.float_graph import INT16_OPSET
from onnxport.quantize.placement import Placement
from onnxport.quantize.search import Level

WHY = "the budgets are not kept with it in 8 bits"


class MixedPrecisionSpace:
    """The models of one calibration, by their restored nodes; see search.Space. `write` makes the model of a plan."""

    def __init__(self, placement: Placement, write: Callable[[Placement], Model]) -> None:
        self._placement, self._write = placement, write
        # What only follows its neighbours does no harm that restoring them would not mend.
        self.units = tuple(unit.node for unit in placement.units if not unit.follows)

    def plan(self, restored: Mapping[str, Level]) -> Placement:
        """Return the plan with these nodes in float, or their activations in 16 bits."""
        floats = [node for node, level in restored.items() if level == "float"]
        plan = self._placement.without(floats, why=WHY)
        wide = [unit for unit in plan.units if restored.get(unit.node) == "16-bit"]
        return plan.widened([name for unit in wide for name in unit.tensors])

    def built(self, restored: Mapping[str, Level]) -> Model:
        """See search.Space.built."""
        plan = self.plan(restored)
        model = self._write(plan)
        if plan.wide and model.opset < INT16_OPSET:
            lift(model.ir, INT16_OPSET)
        return model
