"""Evaluates Core ML's ML programs where Core ML itself is not: operator by operator, as Apple's documentation has them.

Written from the documentation of MIL's operators, for any `.mlpackage`, not only ours; it shares no code with the
converter, and of coremltools it uses the protobuf messages alone. Floats are computed in float32 and rounded to the
type that the program declares after every operator. That is what a program means, not what an accelerator makes of
it: docs/fidelity.md says what that proves.
"""

from onnxport.runtimes.mlprogram.runtime import MilRuntime

__all__ = ["MilRuntime"]
