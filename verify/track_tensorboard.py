"""TensorBoard: a result as scalars and text in an event file, with the JSON result beside it.

The writer is that of the `tensorboard` package, which loads neither torch nor TensorFlow.
"""

import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from traceparity.verify.trackers import RESULT, Tracked


def log(tracked: Tracked, folder: str) -> None:
    """Log a result.

    Args:
        tracked: The result.
        folder: The folder of event files; empty for ``runs/traceparity``.
    """
    place = Path(folder or "runs/traceparity") / tracked.command
    values = [
        Summary.Value(tag=f"{tracked.command}/{name}", simple_value=count)
        for name, count in tracked.counts.items()
    ]
    values += [_text(f"{tracked.command}/{name}", text) for name, text in tracked.texts.items()]
    values.append(_text(f"{tracked.command}/result", f"```json\n{tracked.result}\n```"))
    writer = EventFileWriter(str(place))
    writer.add_event(Event(wall_time=time.time(), summary=Summary(value=values)))
    writer.close()
    (place / RESULT).write_text(tracked.result, encoding="utf-8")


def _text(tag: str, text: str) -> Summary.Value:
    one = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()], tensor_shape=one)
    metadata = create_summary_metadata(display_name="", description="")
    return Summary.Value(tag=tag, metadata=metadata, tensor=tensor)
