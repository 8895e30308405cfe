"""The hook families: each module observes one part of a training step."""
