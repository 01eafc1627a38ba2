"""TLS between the processes of an application: whoever listens to other hosts shows a certificate,
and whoever calls checks it. Who calls is told by the run's token, as everywhere.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from penstock.config import Config
from penstock.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Trust:
    """By what callers know that they speak with the application; none of it is secret."""

    authorities: str
    """Certificates of those who sign, as PEM."""
    server_name: str = ""
    """The name in every certificate; empty if each bears the address of its host."""

    def wrap(self, address: str) -> tuple[ssl.SSLContext, str]:
        """What a socket to that address is wrapped with, and the name that it must show."""
        context = ssl.create_default_context(cadata=self.authorities)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context, self.server_name or address


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """The files of one host: what it shows to others, and by what it knows them."""

    certificate: str
    key: str
    authority: str
    server_name: str = ""

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
        )

    def trust(self) -> Trust:
        """What callers need. Raises `ConfigError`."""
        text = _read(self.authority, "tls_ca_file").decode("utf-8", "replace")
        return Trust(authorities=text, server_name=self.server_name)

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
        try:
            # Without a password nobody is asked for one on a terminal that is not there.
            context.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:
            raise ConfigError(
                f"The certificate and its key cannot be used: {error.strerror or error}",
                where={"tls_certificate_file": self.certificate, "tls_key_file": self.key},
                hint="Use PEM files that belong together, the key without a password",
            ) from error
        return context


def _read(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"Option {option} names a file that cannot be read: {error.strerror}",
            where={"file": path},
            hint="Every host of the application needs the file; name one that this user may read",
        ) from error
