"""A package, so that nothing else that is installed as `examples` stands in for it."""
