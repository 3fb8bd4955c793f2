"""What every room stands on: errors, child processes, plugins, and how users write names and sizes."""
