"""The passes between the lowering and the package."""
