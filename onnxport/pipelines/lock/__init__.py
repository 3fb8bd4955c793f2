"""`pipeline.lock`: the inputs and the digests of every artefact of a pipeline."""
