"""When certificates end, read from PEM without a library of cryptography.

Only the one field is read; whether a certificate is right in every other way is for TLS to say.
"""

from __future__ import annotations

import datetime
import re
import ssl

_PEM = re.compile(
    r"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0
_LONG_FORM = 0x80


def ends_at(pem: bytes) -> float:
    """When the first of the certificates in a file ends, in seconds since the epoch.

    Raises:
        ValueError: There is none, or one cannot be read.
    """
    found = _PEM.findall(pem.decode("ascii", "replace"))
    if not found:
        raise ValueError("no certificate in PEM")
    return min(_not_after(ssl.PEM_cert_to_DER_cert(text + "\n")) for text in found)


def _not_after(der: bytes) -> float:
    """`notAfter` of a certificate (RFC 5280, 4.1)."""
    certificate = _content(der, 0, _SEQUENCE)
    signed = _content(certificate, 0, _SEQUENCE)
    fields = _elements(signed)
    if fields and fields[0][0] == _VERSION:
        fields = fields[1:]
    if len(fields) < 4:  # serial number, signature, issuer, validity
        raise ValueError("a certificate is cut off")
    tag, validity = fields[3]
    dates = _elements(validity)
    if tag != _SEQUENCE or len(dates) != 2:
        raise ValueError("a certificate has no validity")
    return _seconds(*dates[1])


def _seconds(tag: int, text: bytes) -> float:
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(tag)
    if form is None:
        raise ValueError("a certificate has no date of its end")
    moment = datetime.datetime.strptime(text.decode("ascii"), form)
    # Two digits are a year from 1950 to 2049 (RFC 5280, 4.1.2.5.1); `strptime` turns at 1969.
    if tag == _UTC_TIME and moment.year >= 2050:
        moment = moment.replace(year=moment.year - 100)
    return moment.replace(tzinfo=datetime.UTC).timestamp()


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Tags and contents of the elements in a DER value, one after the other."""
    found = []
    place = 0
    while place < len(data):
        tag, start, end = _header(data, place)
        found.append((tag, data[start:end]))
        place = end
    return found


def _content(data: bytes, place: int, wanted: int) -> bytes:
    tag, start, end = _header(data, place)
    if tag != wanted:
        raise ValueError("a certificate is not DER")
    return data[start:end]


def _header(data: bytes, place: int) -> tuple[int, int, int]:
    """Tag of the element at a place, and where its content begins and ends."""
    if place + 2 > len(data):
        raise ValueError("a certificate is cut off")
    tag, length, start = data[place], data[place + 1], place + 2
    if length >= _LONG_FORM:
        size = length - _LONG_FORM
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    if start + length > len(data):
        raise ValueError("a certificate is cut off")
    return tag, start, start + length
