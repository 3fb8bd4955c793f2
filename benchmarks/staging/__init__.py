"""The waterfall of a run: stages that are measured inside its processes."""
