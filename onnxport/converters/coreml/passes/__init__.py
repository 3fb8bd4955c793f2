"""The passes between the lowering and the package, and what they have in common."""
