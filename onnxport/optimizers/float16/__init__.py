"""FP16: float32 models in float16, and what of them has to stay float32. The one implementation, for every command.

`conversion.py` makes an ONNX model float16 (`quantize --fp16`, `convert --to ort --precision fp16`); its parts are
`preflight` (how far values go, measured), `islands` and `holds` (what stays float32, and why), `placement` (that for a
whole model), `halves` (the numbers) and `rewriting` (the types). Core ML's lowering, which writes its own float16,
takes `preflight`, `islands`, `epsilons` and `halves` from here.

Not onnxconverter-common, which was tried first (1.16, its defaults with keep_io_types): see docs/float16.md for both,
model by model. Of 45 real models
it FILLS IN
"""
