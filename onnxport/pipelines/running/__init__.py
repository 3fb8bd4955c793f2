"""A pipeline is run: its nodes one by one or several at a time, each by the runner of single commands."""
