"""PyTorch: modules and exported programs, through torch.onnx.export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from onnxport.artifact import TensorSpec
from onnxport.errors import UsageError
from onnxport.exporters.framework import Exported
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.validate.runtimes.base import Array, Feeds


def of_object(model: Any, source: Source, params: ExportParams) -> TorchModule:
    return TorchModule(model, source, params)


class TorchModule:
    kind = "pytorch"
    has_other_kernels = True

    def __init__(self, module: Any, source: Source, params: ExportParams) -> None:
        self._module, self._params = module.eval(), params
        if not params.input:
            raise UsageError(
                f"{source.name} needs an example input", fix="give --input NAME=1,3,224,224:float32"
            )
        self._example = {
            name: torch.randn([int(str(dim)) for dim in spec.shape]) for name, spec in params.input.items()
        }
        self.name = f"PyTorch {torch.__version__}, eager, CPU"
        self.inputs = tuple(
            TensorSpec(
                name,
                spec.dtype,
                tuple(
                    name or size
                    for name, size in zip(
                        params.dynamic.get(name, (None,) * len(spec.shape)), spec.shape, strict=True
                    )
                ),
            )
            for name, spec in params.input.items()
        )
        answers = self._answers(tuple(self._example.values()))
        self.outputs = tuple(
            TensorSpec(f"output_{n}", str(each.numpy().dtype), (None,) * each.ndim)
            for n, each in enumerate(answers)
        )

    def _answers(self, args: tuple[Any, ...]) -> list[Any]:
        with torch.inference_mode():
            answer = self._module(*args)
        return list(answer) if isinstance(answer, tuple) else [answer]

    def export(self, output: Path, opset: int | None) -> Exported:
        dynamic = tuple(
            {
                axis: torch.export.Dim.DYNAMIC
                for axis, name in enumerate(self._params.dynamic.get(name, ()))
                if name
            }
            for name in self._example
        )
        torch.onnx.export(
            self._module,
            tuple(self._example.values()),
            output,
            dynamo=True,
            input_names=[spec.name for spec in self.inputs],
            output_names=[spec.name for spec in self.outputs],
            dynamic_shapes=dynamic if self._params.dynamic else None,
            opset_version=opset and min(opset, 20),
            external_data=False,
        )
        return Exported(output, facts={"exporter": f"torch.onnx {torch.__version__}"})

    def run(self, feeds: Feeds, *, other_kernels: bool = False) -> dict[str, Array]:
        with torch.backends.mkldnn.flags(enabled=not other_kernels):
            answers = self._answers(tuple(torch.from_numpy(feeds[spec.name].copy()) for spec in self.inputs))
        return {spec.name: np.asarray(each) for spec, each in zip(self.outputs, answers, strict=True)}
