"""The forms of a bench: latency, memory and size of artefacts."""
