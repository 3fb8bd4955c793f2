"""An evaluator of Core ML's ML programs, for systems without Core ML: operator by operator, as Apple documents them.

It is written from the documentation of MIL's operators and shares no code with the converter. It computes floats in
float32 and rounds to the declared type after every operator (docs/reference/fidelity.md says what that proves).
"""

from onnxport.runtimes.mlprogram.runtime import MilRuntime

__all__ = ["MilRuntime"]
