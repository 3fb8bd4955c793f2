"""Which nodes compute in float16, which stay in float32, and constants of either."""
