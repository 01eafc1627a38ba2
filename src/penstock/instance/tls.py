"""TLS between the processes of an application: whoever listens to other hosts shows a certificate,
and whoever calls checks it. Who calls is told by the run's token, as everywhere; and by a
certificate as well, if clients are to be verified.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from penstock.config import Config
from penstock.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Trust:
    """By what callers know that they speak with the application, and are known themselves; none of
    it is secret.
    """

    authorities: str
    """Certificates of those who sign, as PEM."""
    server_name: str = ""
    """The name in every certificate; empty if each bears the address of its host."""
    certificate: str = ""
    """The files on the caller's host of what it shows, if it is to be known by that."""
    key: str = ""

    def pair(self) -> tuple[bytes, bytes] | None:
        """What the caller shows, as PEM; None if nothing. Raises `ConfigError`."""
        if not self.certificate:
            return None
        certificate = _read(self.certificate, "tls_certificate_file")
        return certificate, _read(self.key, "tls_key_file")

    def wrap(self, address: str) -> tuple[ssl.SSLContext, str]:
        """What a socket to that address is wrapped with, and the name that it must show."""
        context = ssl.create_default_context(cadata=self.authorities)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate:
            load_pair(context, self.certificate, self.key)
        return context, self.server_name or address


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """The files of one host: what it shows to others, and by what it knows them."""

    certificate: str
    key: str
    authority: str
    server_name: str = ""
    verify_clients: bool = False
    """Whether callers show certificates too, this host among them."""

    @classmethod
    def of(cls, config: Config) -> TlsFiles | None:
        """Those that the options name; None if they name none."""
        if not config.tls_certificate_file:
            return None
        return cls(
            certificate=config.tls_certificate_file,
            key=config.tls_key_file,
            authority=config.tls_ca_file,
            server_name=config.tls_server_name,
            verify_clients=config.tls_verify_clients,
        )

    def trust(self) -> Trust:
        """What callers need. Raises `ConfigError`."""
        text = self.authorities().decode("utf-8", "replace")
        shown = self.verify_clients
        return Trust(
            authorities=text,
            server_name=self.server_name,
            certificate=self.certificate if shown else "",
            key=self.key if shown else "",
        )

    def authorities(self) -> bytes:
        """The certificates of those who sign. Raises `ConfigError`."""
        return _read(self.authority, "tls_ca_file")

    def pair(self) -> tuple[bytes, bytes]:
        """The certificate and its key, as PEM. Raises `ConfigError`, also if they do not match."""
        certificate = _read(self.certificate, "tls_certificate_file")
        key = _read(self.key, "tls_key_file")
        self.context()
        return certificate, key

    def context(self) -> ssl.SSLContext:
        """What a listening socket's connections are wrapped with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_pair(context, self.certificate, self.key)
        if self.verify_clients:
            context.load_verify_locations(cadata=self.authorities().decode("utf-8", "replace"))
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def load_pair(context: ssl.SSLContext, certificate: str | Path, key: str | Path | None) -> None:
    """Have connections show a certificate. Raises `ConfigError` if it does not fit its key."""
    try:
        # Without a password nobody is asked for one on a terminal that is not there.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ConfigError(
            f"The certificate and its key cannot be used: {error.strerror or error}",
            where={"certificate": certificate, "key": key},
            hint="Use PEM files that belong together, the key without a password",
        ) from error


def _read(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"Option {option} names a file that cannot be read: {error.strerror}",
            where={"file": path},
            hint="Every host of the application needs the file; name one that this user may read",
        ) from error
