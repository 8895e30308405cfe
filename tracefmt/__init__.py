"""The trace file format: data model, writer, reader, recovery. Knows nothing of torch or of diffing."""
