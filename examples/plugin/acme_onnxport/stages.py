"""What the plugin brings, declared. onnxport imports this when a pipeline names one of the two; it should be quick."""

from pydantic import BaseModel, ConfigDict, Field

from onnxport.pipelines.stages import Stage


class ZeroWeightsParams(BaseModel):
    """The options of `use: zero-weights`; they stand beside it in the pipeline.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    below: float = Field(default=1e-8, gt=0, description="Weights nearer to 0 than this become 0.")


class OrtPortableParams(BaseModel):
    """The options of `to: ort-portable`: there are none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


ZERO_WEIGHTS = Stage(
    "zero-weights",
    ZeroWeightsParams,
    takes="onnx",
    gives="onnx",
    libraries=("onnx-ir",),
    worker="acme_onnxport.workers:zero_weights",
)

ORT_PORTABLE = Stage(
    "ort-portable",
    OrtPortableParams,
    takes="onnx",
    gives="ort",
    libraries=("onnx", "onnxruntime"),
    worker="acme_onnxport.workers:ort_portable",
)
