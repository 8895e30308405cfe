"""The trace file format: data model, writer, reader, recovery; neither torch nor diffing."""
