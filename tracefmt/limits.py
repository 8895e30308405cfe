"""What a trace may claim: the writer stays below, and the reader believes nothing above.

Every number here bounds the memory or the time that a hostile file can cost. `docs/format.md` lists
them; they may grow in a minor version, never shrink.
"""

MIB = 1 << 20

MAX_HEADER = 1 * MIB
"""Bytes of an unpacked header."""
MAX_CHUNK = 96 * MIB
"""Bytes of an unpacked chunk: the rows of a part, and all tables in the worst case."""
MAX_VALUE_RECORD = 64 * MIB
"""Bytes of an unpacked value record; longer values take several in a row."""
MAX_FOOTER = 160 * MIB
"""Bytes of an unpacked footer, and of a record of unknown kind."""

PART = 16 * MIB
"""Bytes of rows at which the writer begins another chunk."""
MAX_ROWS = 1 << 22
"""Rows of a chunk."""
MAX_INLINE = 1 * MIB
"""Bytes of a tensor's value inside a chunk; longer ones lie in value records."""
MAX_PLAIN = 8 * MIB
"""Bytes of a plain value: a scalar, a marker or sample IDs."""
MAX_PLAIN_CONTAINERS = 1 << 16
"""Lists and maps of a plain value or a header together."""
MAX_PLAIN_DEPTH = 64
"""Lists and maps inside one another."""

MAX_STRINGS = 1 << 20
MAX_STRING_BYTES = 32 * MIB
MAX_SHAPES = 1 << 18
MAX_DIMENSIONS = 64
MAX_SHAPE_SIZES = 1 << 20
"""Sizes of all shapes of a file together."""
MAX_SITES = 1 << 20
MAX_NOTES = 1 << 16
MAX_STEPS = 400_000
"""Steps of a file."""

MAX_STEP = 512 * MIB
"""Bytes of a step that are given as one table; a longer one is read part by part."""
MAX_VALUE = 1024 * MIB
"""Bytes of a value that are given in one piece; a longer one is read piece by piece."""
MAX_FALSE_STARTS = 1 << 14
"""Places that look like the beginning of a record and are none, in one stretch of damage."""
