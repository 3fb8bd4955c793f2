"""Convert the models of `fixtures/reality.toml` as a stranger would, check each artefact, and tell the result."""
