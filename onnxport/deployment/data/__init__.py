"""A data file per runtime: what it takes, from where and of which day that is. docs/deployment.md has their form."""
