"""Verify: run declared commands in fresh processes under the recorder, compare, and report."""
