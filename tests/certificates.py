"""Certificates of an authority made for a test, in the forms that both Kafka clients read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path
    both: Path
    """The key and the certificates in one file: Java's PEM keystore."""


class Authority:
    """Signs certificates for `localhost`, and keeps its own in a file."""

    def __init__(self, directory: Path, name: str) -> None:
        self._authority = trustme.CA(organization_name=name)
        self._directory = directory / name
        self._directory.mkdir(parents=True)
        self.certificate = self._directory / "authority.pem"
        self._authority.cert_pem.write_to_path(str(self.certificate))

    def issue(self, name: str, *, expired: bool = False) -> Identity:
        """A certificate that is good, or was until yesterday."""
        now = datetime.now(UTC)
        issued = self._authority.issue_cert(
            "localhost",
            "127.0.0.1",
            common_name=name,
            not_before=now - timedelta(days=30),
            not_after=now + timedelta(days=-1 if expired else 30),
        )
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        # The form that Java reads; trustme writes OpenSSL's own.
        key = serialization.load_pem_private_key(
            issued.private_key_pem.bytes(), None
        ).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        found = Identity(
            certificate=self._directory / f"{name}.pem",
            key=self._directory / f"{name}.key",
            both=self._directory / f"{name}.both.pem",
        )
        found.certificate.write_bytes(chain)
        found.key.write_bytes(key)
        found.both.write_bytes(key + chain)
        return found
