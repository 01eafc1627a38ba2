"""Murmur3, 128 bits, as Kafka Streams' foreign-key joins use it to recognise a row's value."""

from __future__ import annotations

import struct

SEED = 104729
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_ALL = 0xFFFFFFFFFFFFFFFF
_BLOCK = struct.Struct("<QQ")


def murmur3_128(data: bytes, seed: int = SEED) -> bytes:
    """The hash, 16 bytes.

    >>> murmur3_128(b"abc", seed=123).hex()
    '14abbfbda7f7bda2b47dc2d6a648a3f3'
    """
    first = second = seed
    whole = len(data) // 16 * 16
    for one, two in _BLOCK.iter_unpack(data[:whole]):
        first ^= _rotate(one * _C1 & _ALL, 31) * _C2 & _ALL
        first = (_rotate(first, 27) + second) * 5 + 0x52DCE729 & _ALL
        second ^= _rotate(two * _C2 & _ALL, 33) * _C1 & _ALL
        second = (_rotate(second, 31) + first) * 5 + 0x38495AB5 & _ALL
    tail = data[whole:]
    if tail:
        one, two = _BLOCK.unpack(tail.ljust(16, b"\0"))
        second ^= _rotate(two * _C2 & _ALL, 33) * _C1 & _ALL
        first ^= _rotate(one * _C1 & _ALL, 31) * _C2 & _ALL
    first ^= len(data)
    second ^= len(data)
    first = first + second & _ALL
    second = second + first & _ALL
    first, second = _mixed(first), _mixed(second)
    first = first + second & _ALL
    second = second + first & _ALL
    return struct.pack(">QQ", first, second)


def _rotate(number: int, count: int) -> int:
    return (number << count | number >> (64 - count)) & _ALL


def _mixed(number: int) -> int:
    number ^= number >> 33
    number = number * 0xFF51AFD7ED558CCD & _ALL
    number ^= number >> 33
    number = number * 0xC4CEB9FE1A85EC53 & _ALL
    return number ^ number >> 33
