"""Side by side with the tools that do the same: each benchmark one command that prints what it measured."""
