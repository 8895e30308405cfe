"""Tables: the strings, shapes, sites and notes that ids stand for.

A name is written once, in the chunk that first uses it; everywhere else stands its number. Number 0
is the empty string, and the shape ``()``, in every file.
"""

from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from traceparity.tracefmt import limits
from traceparity.tracefmt.errors import TraceFormatError, TraceLimitError
from traceparity.tracefmt.payload import Fields, fields_of
from traceparity.tracefmt.phase_digest import SiteColumns
from traceparity.tracefmt.records import NotObserved, Phase, Site, SiteEntry

_PHASES = tuple(Phase)

Lengths = tuple[int, int, int, int]
"""How many strings, shapes, sites and notes there are."""
AT_FIRST: Lengths = (1, 1, 0, 0)
_MOST_SHARED = 4 * limits.MIB
"""Bytes of tables up to which they are kept for the next trace."""


@dataclass(slots=True)
class Tables:
    """What ids stand for: everything interned so far in one file.

    Attributes:
        strings: By id.
        shapes: By id.
        sites: By id.
        not_observed: In the order in which they were noted.
        string_bytes: Bytes of all strings together.
        sizes: How many sizes all shapes have together.
    """

    strings: list[str] = field(default_factory=lambda: [""])
    shapes: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    sites: list[SiteEntry] = field(default_factory=list)
    not_observed: list[NotObserved] = field(default_factory=list)
    string_bytes: int = 0
    sizes: int = 0

    @property
    def lengths(self) -> Lengths:
        """How much each table holds."""
        return len(self.strings), len(self.shapes), len(self.sites), len(self.not_observed)


class Interner:
    """Gives ids to names, and packs those that a file lacks.

    It holds no more than it needs to do so, since a run whose models come and go has ever more
    names. Every method that interns raises `TraceLimitError` where the table is full, and then
    changes nothing.

    Attributes:
        site_columns: Phase and hash of each site.
    """

    def __init__(self) -> None:
        self.site_columns = SiteColumns()
        self._string_ids = {"": 0}
        self._string_data = bytearray()
        self._string_ends = array("Q", [0])
        self._shape_ids: dict[tuple[int, ...], int] = {(): 0}
        self._shapes: list[tuple[int, ...]] = [()]
        self._shape_sizes = 0
        # By phase, component and field in one number, which takes less than a tuple.
        self._site_ids: dict[int, int] = {}
        self._site_rows = array("I")
        self._notes: set[NotObserved] = set()
        self._note_rows: list[tuple[int, int]] = []

    @property
    def lengths(self) -> Lengths:
        """How much each table holds."""
        return len(self._string_ids), len(self._shapes), len(self._site_ids), len(self._notes)

    def string(self, text: str) -> int:
        """The id of a string."""
        found = self._string_ids.get(text)
        return self._new_string(text) if found is None else found

    def _new_string(self, text: str) -> int:
        encoded = text.encode("utf-8", "backslashreplace")
        if (
            len(self._string_ids) >= limits.MAX_STRINGS
            or len(self._string_data) + len(encoded) > limits.MAX_STRING_BYTES
        ):
            raise TraceLimitError("the trace has no room for more names")
        found = self._string_ids[text] = len(self._string_ids)
        self._string_data += encoded
        self._string_ends.append(len(self._string_data))
        return found

    def shape(self, shape: tuple[int, ...]) -> int:
        """The id of a shape."""
        found = self._shape_ids.get(shape)
        if found is None:
            if (
                len(self._shapes) >= limits.MAX_SHAPES
                or len(shape) > limits.MAX_DIMENSIONS
                or self._shape_sizes + len(shape) > limits.MAX_SHAPE_SIZES
            ):
                raise TraceLimitError("the trace has no room for more shapes")
            found = self._shape_ids[shape] = len(self._shapes)
            self._shapes.append(shape)
            self._shape_sizes += len(shape)
        return found

    def site(self, phase: Phase, component: str, name: str, location: str) -> int:
        """The id of a site; the location counts when the site is new."""
        ids = self._string_ids
        known = ids.get(component), ids.get(name)
        if None not in known:
            found = self._site_ids.get(_site_key(phase, *known))  # type: ignore[arg-type]
            if found is not None:
                return found
        if len(self._site_ids) >= limits.MAX_SITES:
            raise TraceLimitError("the trace has no room for more sites")
        row = (int(phase), self.string(component), self.string(name), self.string(location))
        self.site_columns.append(Site(phase, component, name))
        found = self._site_ids[_site_key(*row[:3])] = len(self._site_ids)
        self._site_rows.extend(row)
        return found

    def note(self, note: NotObserved) -> None:
        """Take in something that was not observed; a repeated note counts once."""
        if note in self._notes:
            return
        if len(self._notes) >= limits.MAX_NOTES:
            raise TraceLimitError("the trace has no room for more notes")
        self._note_rows.append((self.string(note.component), self.string(note.reason)))
        self._notes.add(note)

    def pack(self, since: Lengths) -> dict[str, Any]:
        """What was interned since the tables had the given lengths, as fields of a payload.

        Where nothing is new, the lengths alone are packed.
        """
        base = np.array(since, "<u4").tobytes()
        if since == self.lengths:
            return {"base": base}
        strings, shapes, sites, notes = since
        # The first string is the empty one: what precedes string n ends where string n - 1 does.
        ends = np.array(self._string_ends[strings - 1 :], np.uint64)
        new_shapes = self._shapes[shapes:]
        site_rows = np.array(self._site_rows[4 * sites :], "<u4").reshape(-1, 4)
        note_rows = np.array(self._note_rows[notes:], "<u4").reshape(-1, 2)
        return {
            "base": base,
            "strings": bytes(self._string_data[int(ends[0]) :]),
            "string_lengths": np.diff(ends).astype("<u4").tobytes(),
            "shape_ranks": bytes(len(shape) for shape in new_shapes),
            "shape_sizes": np.array([n for shape in new_shapes for n in shape], "<u8").tobytes(),
            "site_phase": site_rows[:, 0].astype("u1").tobytes(),
            "site_component": site_rows[:, 1].tobytes(),
            "site_field": site_rows[:, 2].tobytes(),
            "site_location": site_rows[:, 3].tobytes(),
            "note_component": note_rows[:, 0].tobytes(),
            "note_reason": note_rows[:, 1].tobytes(),
        }


def _site_key(phase: int, component: int, name: int) -> int:
    return (phase << 32 | component) << 32 | name


def complete_tables(new: Fields) -> Tables:
    """The tables that a footer holds; not to be changed.

    Those of all ranks of a run are nearly always the same, so that a thousand traces share one.

    Raises:
        TraceFormatError: They are damaged.
    """
    data = new.byte_strings()
    if data is None or sum(len(value) for _, value in data) > _MOST_SHARED:
        return _complete(new)
    return _shared(data)


def _complete(new: Fields) -> Tables:
    if base_of(new) != AT_FIRST:
        raise new.error("they are not complete")
    tables = Tables()
    extend(tables, new)
    return tables


@lru_cache(maxsize=16)
def _shared(data: tuple[tuple[str, bytes], ...]) -> Tables:
    return _complete(fields_of("footer's tables", data))


def reinterned(tables: Tables) -> Interner:
    """An interner that gives the ids of tables that were read.

    Raises:
        TraceFormatError: A name stands in them twice.
    """
    names = Interner()
    for text in tables.strings[1:]:
        names.string(text)
    for shape in tables.shapes[1:]:
        names.shape(shape)
    for entry in tables.sites:
        names.site(entry.site.phase, entry.site.component, entry.site.field, entry.location)
    for note in tables.not_observed:
        names.note(note)
    if names.lengths != tables.lengths:
        raise TraceFormatError("a name is interned twice")
    return names


def base_of(fields: Fields) -> Lengths:
    """How long the tables must be before these are appended.

    Raises:
        TraceFormatError: The field is damaged.
    """
    strings, shapes, sites, notes = fields.array("base", "<u4", 4).tolist()
    return strings, shapes, sites, notes


def extend(tables: Tables, fields: Fields) -> None:
    """Append what a chunk or the footer brings; appends nothing when it raises.

    Raises:
        TraceFormatError: An entry is damaged or points outside the tables, or they are too long.
    """
    if not fields.has("strings"):
        return
    strings, size = _strings(fields, tables)
    shapes, sizes = _shapes(fields, tables)
    known = len(tables.strings)
    tables.strings += strings
    try:
        sites = _sites(fields, tables.strings, limits.MAX_SITES - len(tables.sites))
        notes = _notes(fields, tables.strings, limits.MAX_NOTES - len(tables.not_observed))
    except TraceFormatError:
        del tables.strings[known:]
        raise
    tables.string_bytes += size
    tables.shapes += shapes
    tables.sizes += sizes
    tables.sites += sites
    tables.not_observed += notes


def _strings(fields: Fields, tables: Tables) -> tuple[list[str], int]:
    data, lengths = fields.data("strings"), fields.array("string_lengths", "<u4")
    if (
        len(tables.strings) + len(lengths) > limits.MAX_STRINGS
        or tables.string_bytes + len(data) > limits.MAX_STRING_BYTES
    ):
        raise fields.error("too many strings")
    ends = np.cumsum(lengths, dtype=np.uint64).tolist()
    if len(data) != (ends[-1] if ends else 0):
        raise fields.error("the strings have another length than they state")
    try:
        if data.isascii():
            text = data.decode("ascii")
            return [text[start:end] for start, end in pairwise((0, *ends))], len(data)
        return [data[start:end].decode() for start, end in pairwise((0, *ends))], len(data)
    except UnicodeDecodeError as error:
        raise fields.error("a string is no UTF-8") from error


def _shapes(fields: Fields, tables: Tables) -> tuple[list[tuple[int, ...]], int]:
    ranks, sizes = fields.array("shape_ranks", "u1"), fields.array("shape_sizes", "<u8")
    if (
        len(tables.shapes) + len(ranks) > limits.MAX_SHAPES
        or tables.sizes + len(sizes) > limits.MAX_SHAPE_SIZES
        or int(ranks.max(initial=0)) > limits.MAX_DIMENSIONS
    ):
        raise fields.error("too many shapes or dimensions")
    ends = np.cumsum(ranks, dtype=np.uint64).tolist()
    if len(sizes) != (ends[-1] if ends else 0) or int(sizes.max(initial=0)) >= 1 << 63:
        raise fields.error("an impossible shape")
    plain = sizes.tolist()
    return [tuple(plain[start:end]) for start, end in pairwise((0, *ends))], len(plain)


def _sites(fields: Fields, strings: list[str], room: int) -> list[SiteEntry]:
    phases = fields.array("site_phase", "u1")
    if len(phases) > room or int(phases.max(initial=0)) >= len(_PHASES):
        raise fields.error("too many sites, or one of an unknown phase")
    columns = (
        _ids(fields, name, len(phases), strings)
        for name in ("site_component", "site_field", "site_location")
    )
    return [
        SiteEntry(Site(_PHASES[phase], strings[component], strings[name]), strings[location])
        for phase, component, name, location in zip(phases.tolist(), *columns, strict=True)
    ]


def _notes(fields: Fields, strings: list[str], room: int) -> list[NotObserved]:
    components = fields.array("note_component", "<u4")
    if len(components) > room:
        raise fields.error("too many notes")
    columns = (
        _ids(fields, name, len(components), strings) for name in ("note_component", "note_reason")
    )
    return [
        NotObserved(strings[component], strings[reason])
        for component, reason in zip(*columns, strict=True)
    ]


def _ids(fields: Fields, name: str, count: int, strings: list[str]) -> list[int]:
    ids = fields.array(name, "<u4", count)
    if int(ids.max(initial=0)) >= len(strings):
        raise fields.error(f"{name!r} points outside the strings")
    found: list[int] = ids.tolist()
    return found
