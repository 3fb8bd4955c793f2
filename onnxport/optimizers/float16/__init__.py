"""FP16: float32 models converted to float16, except what must stay float32; one implementation for every command.

`conversion` converts an ONNX model. `preflight` measures values; `islands`, `epsilons` and `operator_support`
decide what stays float32, `placement` for a whole model; `constants` and `batch_norms` convert numbers, `rewriter`
the graph. Core ML's lowering uses `preflight`, `islands`, `epsilons` and `constants`.

Not onnxconverter-common (1.16): of 40 real float models 10 of its files do not load in ONNX Runtime, one crashes
it, and PP-OCRv4's detector returns noise. All of ours load. It measures nothing and has no bound on memory
(docs/reference/float16.md).
"""
