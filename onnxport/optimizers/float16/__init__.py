"""FP16: float32 models converted to float16, except what must stay float32; one implementation for every
command.

`conversion.py` makes an ONNX model float16 (`quantize --fp16`, `convert --to ort --precision fp16`). Its parts:
`preflight` and `taps` (how far values go, measured), `islands`, `epsilons` and `holds` (what stays float32, and why),
`placement` (that for a whole model), `halves` and `batch_norms` (the numbers), `rewriting` (the types). Core ML's
lowering writes float16 of its own and takes `preflight`, `islands`, `epsilons` and `halves` from here.

Not onnxconverter-common, which was tried first: 1.16, its defaults with keep_io_types, on 40 real float models. 10 of
its files do not load in ONNX Runtime (If, Resize, Range, types that contradict each other), one ends ONNX Runtime's
process, and PP-OCRv4's detector answers noise (it lifts variances to 1e-7). Ours load on all 40; of the 29 that both
convert ours is behind by more than 0.5 dB on one, ahead on 11 (docs/float16.md). It measures nothing, so that what
overflows is for its user to find, and it has no bounds on memory.
"""
