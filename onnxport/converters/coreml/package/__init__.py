"""The .mlpackage: its files, what it says of inputs and outputs, and how its weights are stored."""
