"""Seconds since the epoch <-> ``google.protobuf.Timestamp``."""

from __future__ import annotations

import math

from google.protobuf import timestamp_pb2

_NANOS = 1_000_000_000


def timestamp_to_message(seconds: float) -> timestamp_pb2.Timestamp:
    """A point in time, given as seconds since the epoch.

    Whole seconds and the rest are converted apart: nanoseconds since the epoch exceed what a float
    holds exactly, and a time that went over the wire must equal the one that did not.
    """
    whole = math.floor(seconds)
    carry, nanos = divmod(round((seconds - whole) * _NANOS), _NANOS)
    return timestamp_pb2.Timestamp(seconds=whole + carry, nanos=nanos)


def timestamp_from_message(message: timestamp_pb2.Timestamp) -> float:
    """Seconds since the epoch."""
    return message.seconds + message.nanos / _NANOS
