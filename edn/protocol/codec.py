"""Encodes messages (msgpack) and arrays (little-endian bytes). See `edn.protocol`."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from edn.errors import CorruptMessage

#: media type of messages
MSGPACK = "application/msgpack"
#: media type of streams
LINES = "application/x-ndjson"
#: integers that fit into databases and arrays; msgpack has larger ones
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
#: columns of a row of points
Width = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message)


Message = TypeVar("Message", bound=msgspec.Struct)


class Decoder(Generic[Message]):
    """Decodes messages of one type; raises `CorruptMessage`."""

    def __init__(self, kind: type[Message]) -> None:
        self._kind = kind.__name__
        self._decoder = msgspec.msgpack.Decoder(kind)

    def decode(self, data: bytes) -> Message:
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptMessage(f"the message must be {self._kind}: {error}") from None


_decoder_of = functools.cache(Decoder)


def decode(data: bytes, kind: type[Message]) -> Message:
    return cast(Message, _decoder_of(kind).decode(data))


def generated_id(log: str, offset: int | str) -> str:
    """Generates the id of an event without one."""
    return f"{log[:8]}-{offset}"


def generated_ids(log: str, first: int, count: int) -> list[str]:
    """Generates the ids of consecutive events."""
    prefix = generated_id(log, "")
    return [f"{prefix}{offset}" for offset in range(first, first + count)]


def int64_bytes(values: npt.ArrayLike) -> bytes:
    return np.asarray(values, dtype="<i8").tobytes()


def view(values: npt.NDArray[Any]) -> bytes:
    """Returns an array's bytes without a copy, for a message that is encoded at once."""
    if not values.size:
        return b""
    little = values.dtype.newbyteorder("<")
    # A memoryview, which the encoder accepts like `bytes`.
    return cast(bytes, np.ascontiguousarray(values, dtype=little).data.cast("B"))


def int64_array(data: bytes) -> npt.NDArray[np.int64]:
    if len(data) % 8:
        raise CorruptMessage(f"a column of integers must have a multiple of 8 bytes, got {len(data)}")
    return np.frombuffer(data, dtype="<i8")


def points_bytes(points: npt.NDArray[np.float64]) -> bytes:
    return np.ascontiguousarray(points, dtype="<f8").tobytes()


def points_array(data: bytes, width: int) -> npt.NDArray[np.float64]:
    if not width:
        return np.empty((0, 0))
    if len(data) % (8 * width):
        raise CorruptMessage(f"points must have a multiple of {8 * width} bytes, got {len(data)}")
    return np.frombuffer(data, dtype="<f8").reshape(-1, width)
