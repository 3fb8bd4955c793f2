"""Artefacts for one accelerator: the compiler's file in forms that the accelerator takes and computes right."""
