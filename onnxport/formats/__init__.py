"""Model files: the formats, their readers, and atomic writes."""
