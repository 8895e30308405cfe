"""Sample IDs from a field of the batch: a tensor of them, one ID, or a list over many rows."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from traceparity.differ.next_commands import record_again
from traceparity.differ.observation import numpy_dtype
from traceparity.differ.sample_ids import Numbers, SampleIds
from traceparity.differ.step_pair import digest_kind
from traceparity.tracefmt.records import Columns, Kind, Phase
from traceparity.tracefmt.tensor_digest import KIND, digest_of

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

_MOST_LEAVES = 512
"""Items of a list that the recorder looks at; of a longer one the rest is not in the trace."""
_MOST_BYTES = 1 << 26
_WHOLE = -1


class UnknownIds(Exception):
    """The samples of a batch cannot be told; the message says why, and what would help."""


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A row of the field.

    Attributes:
        columns: The chunk.
        row: The row in it.
        place: Number of the item where the field is a list; -1 for the field itself.
    """

    columns: Columns
    row: int
    place: int | None


class FieldIds:
    """Tells samples by a field of the batch in one trace."""

    def __init__(self, trace: "Trace", name: str, ids: SampleIds) -> None:
        self._trace = trace
        self._name = name
        self._ids = ids
        self._item = re.compile(re.escape(name) + r"\[(\d+)\]")

    def place_of(self, field: str) -> int | None:
        """What a field of the batch is to this one: itself (-1), an item of it, or nothing."""
        if field == self._name:
            return _WHOLE
        found = self._item.fullmatch(field)
        return int(found[1]) if found else None

    def ids(self, rows: Sequence[FieldRow], asked: Numbers | None) -> Numbers:
        """The samples of a batch; ``asked`` is what its sampler asked for, where that is known.

        Raises:
            UnknownIds: They cannot be told.
        """
        if not rows:
            raise UnknownIds(f"the batch has no {self._name}; {self._other_fields()}")
        if rows[0].place == _WHOLE:
            return self._single(rows[0], asked)
        if len(rows) >= _MOST_LEAVES:
            raise UnknownIds(
                f"of the list {self._name} only the first {_MOST_LEAVES} items are recorded"
            )
        return np.concatenate([self._single(row, None) for row in rows])

    def _single(self, found: FieldRow, asked: Numbers | None) -> Numbers:
        columns, row = found.columns, found.row
        if columns.kind[row] == Kind.TENSOR:
            return self._of_tensor(columns, row, asked)
        value = self._trace.scalar(columns, row)
        numbers = self._ids.numbers([value])
        if numbers is None:
            raise UnknownIds(f"{self._name} holds {value!r}, which names no sample")
        return numbers

    def _of_tensor(self, columns: Columns, row: int, asked: Numbers | None) -> Numbers:
        trace = self._trace
        name = trace.strings[columns.dtype[row]].removeprefix("torch.")
        shape = trace.shapes[columns.shape[row]]
        dtype = numpy_dtype(name)
        if dtype is None or dtype.kind not in "iu":
            raise UnknownIds(f"{self._name} is a tensor of {name}, which names no sample")
        count = math.prod(shape)
        if count != (shape[0] if shape else 1):
            raise UnknownIds(f"{self._name} has {count} numbers in {shape[0]} samples")
        if int(columns.value_length[row]) > _MOST_BYTES:
            raise UnknownIds(f"{self._name} is larger than {_MOST_BYTES} bytes")
        data = trace.value(columns, row)
        if data is None:
            return self._by_digest(columns, row, dtype, asked)
        numbers = None
        if len(data) == count * dtype.itemsize:
            numbers = self._ids.of_array(np.frombuffer(data, dtype))
        if numbers is None:
            raise UnknownIds(f"{self._name} has values of another size than its shape")
        return numbers

    def _by_digest(
        self, columns: Columns, row: int, dtype: np.dtype[Any], asked: Numbers | None
    ) -> Numbers:
        """Without values: a digest equal to that of the sampler's IDs proves that it is them."""
        trace = self._trace
        shape = trace.shapes[columns.shape[row]]
        kind = digest_kind(trace.header.capture, trace.strings[columns.device[row]])
        if asked is not None and kind == KIND and len(asked) == math.prod(shape):
            limits = np.iinfo(dtype)
            if not len(asked) or (limits.min <= asked.min() and asked.max() <= limits.max):
                same = digest_of(asked.astype(dtype).tobytes(), dtype.name, shape)
                if same == columns.digest[row].tobytes():
                    return asked
        raise UnknownIds(
            f"of {self._name} only digests were kept, and they are not those of the sampler's IDs; "
            f"record it with its values: {record_again(trace, (), 'values')}"
        )

    def unknown_sampler(self) -> str:
        """Why the sampler tells nothing, and what would."""
        return f"no sampler told which samples were asked for; {self._other_fields()}"

    def _other_fields(self) -> str:
        fields = {
            re.sub(r"\[\d+\]$", "", field) if field.count("[") > 1 else field
            for field in (
                entry.site.field for entry in self._trace.sites if entry.site.phase == Phase.DATA
            )
            if field.startswith("batch")
        }
        named = ", ".join(sorted(fields)[:8])
        if not named:
            return "no field of the batch was recorded"
        return f"declare the field of the batch that names them as id: {named}"
