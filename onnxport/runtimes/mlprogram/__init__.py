"""An evaluator of Core ML's ML programs, for systems without Core ML: operator by operator, as Apple documents them.

It is written from the documentation of MIL's operators, for any `.mlpackage`. It shares no code with the converter and
uses only the protobuf messages of coremltools. It computes floats in float32 and rounds to the declared type after
every operator: the meaning of a program, not an accelerator's result (docs/reference/fidelity.md says what that
proves).
"""

from onnxport.runtimes.mlprogram.runtime import MilRuntime

__all__ = ["MilRuntime"]
