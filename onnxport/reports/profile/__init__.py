"""The forms of a profile: the time of every node of a model."""
