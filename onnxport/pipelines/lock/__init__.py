"""`pipeline.lock`: what every artefact of a pipeline was made from, and its bytes."""
