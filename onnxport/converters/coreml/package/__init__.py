"""The .mlpackage: its files, the description of its inputs and outputs, and the storage of its weights."""
