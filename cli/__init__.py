"""The commands: each parses, calls, renders and exits."""
