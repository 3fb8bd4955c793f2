"""What a pipeline.yaml says: the file with its places, the schema, and the pipeline that the two make."""
