"""How fast, how large and how hungry an artefact is on this machine: each in a process of its own, in turns."""
