"""The nodes of a pipeline: their cache keys, and the plan of a run."""
