"""Compare two traces and name their first divergence, without torch."""
