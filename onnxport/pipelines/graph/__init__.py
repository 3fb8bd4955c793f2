"""What has to be done for a pipeline, and what is done already."""
