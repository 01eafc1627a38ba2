"""Points in time, as Kafka counts them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from penstock.serdes.contract import Serde
from penstock.serdes.scalars import LongSerde

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LONG = LongSerde()


@dataclass(frozen=True)
class DateTimeSerde(Serde[datetime]):
    """A point in time as milliseconds since 1970 in Kafka's Long; it comes back in UTC.

    >>> DateTimeSerde().deserialize((1_000).to_bytes(8, "big"))
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)

    A datetime without time zone is refused, since it names another moment on every machine. What
    is finer than a millisecond is cut off, towards the past, as Kafka's timestamps are.
    """

    name: ClassVar[str] = "datetime"
    immutable: ClassVar[bool] = True
    canonical: ClassVar[bool] = True
    fixed_length: ClassVar[int | None] = 8

    def serialize(self, value: datetime) -> bytes:
        if not isinstance(value, datetime):
            raise TypeError(f"expected datetime, got {type(value).__name__}")
        if value.utcoffset() is None:
            raise ValueError(
                f"{value!r} has no time zone; make it with one, as datetime.now(UTC) does"
            )
        return _LONG.serialize((value - _EPOCH) // _MILLISECOND)

    def deserialize(self, data: bytes) -> datetime:
        milliseconds = _LONG.deserialize(data)
        try:
            return _EPOCH + milliseconds * _MILLISECOND
        except OverflowError as error:
            raise ValueError(f"{milliseconds} ms lies outside the years 1 to 9999") from error
