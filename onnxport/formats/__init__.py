"""Model files: what each format is, how one is read, and how one is written whole."""
