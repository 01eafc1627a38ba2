"""The HTTP service of an instance: by which options, and what it is given to answer with.

What serves it comes later in the package, and is handed in by whoever starts the process.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from penstock.config import Config

if TYPE_CHECKING:
    # It brings Arrow's Flight: those who only look at the options need not wait for it.
    from penstock.instance.client import Client
    from penstock.instance.tls import Trust


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """Where an instance listens, and the files on its host; of tokens only where they lie."""

    listen: str
    token_file: str = ""
    admin_token_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_client_ca_file: str = ""
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Config) -> Self | None:
        """What the application's options say; None if its instances are not to listen."""
        if not config.instance_http_listen:
            return None
        return cls(
            listen=config.instance_http_listen,
            token_file=config.http_token_file,
            admin_token_file=config.http_admin_token_file,
            tls_certificate_file=config.http_tls_certificate_file,
            tls_key_file=config.http_tls_key_file,
            tls_client_ca_file=config.http_tls_client_ca_file,
            hosts=config.http_hosts,
        )

    def config(self) -> Config:
        """The same as the options of a service that listens there."""
        return Config(
            http_listen=self.listen,
            http_token_file=self.token_file,
            http_admin_token_file=self.admin_token_file,
            http_tls_certificate_file=self.tls_certificate_file,
            http_tls_key_file=self.tls_key_file,
            http_tls_client_ca_file=self.tls_client_ca_file,
            http_hosts=self.hosts,
        )


@dataclass(frozen=True, kw_only=True)
class HttpParts:
    """What an instance has for those who ask it."""

    name: str
    options: HttpOptions
    coordinator: Client
    token: str
    """What calls to other instances bear."""
    trust: Trust | None
    is_ready: Callable[[], bool]
    """Whether the driver counts on the instance."""
    metrics: Callable[[], bytes]
    """What the instance's metrics show now, as Prometheus' text."""

    def __repr__(self) -> str:
        """Without the token."""
        return f"HttpParts({self.name!r})"


ServeHttp = Callable[[HttpParts], AbstractContextManager[str]]
"""Answers while the block runs; gives the address, or nothing if it cannot be had."""
