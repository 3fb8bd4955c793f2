"""Latency, size, memory and energy of artefacts on this machine, each in a process of its own, in turns."""
