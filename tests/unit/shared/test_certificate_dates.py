"""When certificates end, beside what a library of cryptography reads."""

from __future__ import annotations

import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from hypothesis import example, given
from hypothesis import strategies as st

from skipstone_shared.certificate_dates import ends_at

NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 40) for _ in range(4)])
KEYS = {"ec": ec.generate_private_key(ec.SECP256R1()), "rsa": rsa.generate_private_key(65537, 2048)}


def certificate(kind: str, end: datetime.datetime) -> bytes:
    key = KEYS[kind]
    made = (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


DER = ssl.PEM_cert_to_DER_cert(
    certificate("ec", datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)).decode()
)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("year", [1961, 1999, 2026, 2049, 2050, 9999])
def test_the_end_of_a_certificate_is_read_as_it_was_written(kind: str, year: int) -> None:
    end = datetime.datetime(year, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    assert ends_at(certificate(kind, end)) == end.timestamp()


def test_of_a_chain_the_first_end_counts() -> None:
    ends = [datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2040, 2030, 2050)]
    chain = b"some words\n".join(certificate("ec", end) for end in ends)
    assert ends_at(chain) == ends[1].timestamp()


@given(st.binary(max_size=200))
@example(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
@example(b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n")
def test_what_is_no_certificate_is_said_so(data: bytes) -> None:
    with pytest.raises(ValueError):
        ends_at(data)


@given(st.data())
def test_a_damaged_certificate_is_read_or_refused(data: st.DataObject) -> None:
    der = bytearray(DER)
    place = data.draw(st.integers(0, len(der) - 1))
    der[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(der)))
    for damaged in (bytes(der), bytes(der[:cut])):
        try:
            assert isinstance(ends_at(ssl.DER_cert_to_PEM_cert(damaged).encode()), float)
        except ValueError:
            continue
