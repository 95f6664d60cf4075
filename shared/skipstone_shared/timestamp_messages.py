"""Seconds since the epoch <-> ``google.protobuf.Timestamp``."""

from __future__ import annotations

from google.protobuf import timestamp_pb2


def timestamp_to_message(seconds: float) -> timestamp_pb2.Timestamp:
    """A point in time; seconds since the epoch are rounded to nanoseconds."""
    timestamp = timestamp_pb2.Timestamp()
    timestamp.FromNanoseconds(round(seconds * 1e9))
    return timestamp


def timestamp_from_message(message: timestamp_pb2.Timestamp) -> float:
    """Seconds since the epoch."""
    return message.ToNanoseconds() / 1e9
