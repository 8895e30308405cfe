"""Invariants: learn what held in good traces, and check other traces against it. No torch."""
