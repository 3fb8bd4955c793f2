"""A data file per runtime: what it runs, the source and the date (docs/guide/deployment.md)."""
