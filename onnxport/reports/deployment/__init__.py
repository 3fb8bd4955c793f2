"""The forms of a deployment's report: which runtimes take a model, and what falls back."""
