"""Input data: read from the user's files, or generated within the domains that a graph implies."""
