"""Lowerings by family; `import_lowerings` registers all of them."""
