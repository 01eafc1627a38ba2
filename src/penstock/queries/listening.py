"""Where the HTTP service listens, by which options, and what is refused."""

from __future__ import annotations

import secrets
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from penstock.config import Config
from penstock.errors import ConfigError
from penstock.option_values import parse_address
from penstock.queries.access import Access, Scope, check_token, is_loopback

_WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104 - recognised here so that they can be refused


@dataclass(frozen=True, kw_only=True)
class Listening:
    """An address, who is let in there, and the certificate that it shows."""

    host: str
    port: int
    access: Access
    token: str = field(repr=False)
    """Of this run, for those who may read its file."""
    tls: ssl.SSLContext | None = None
    certificate: str = ""
    hosts: tuple[str, ...] = ()
    option: str = "http_listen"

    @classmethod
    def of(cls, config: Config, *, token: str = "", option: str = "http_listen") -> Self:
        """What the options say. Raises `ConfigError` for what is open to others and not safe.

        `token` is the run's, a new one unless it is given; `option` is what the address is called.
        """
        host, port = parse_address(config.http_listen)
        tls = _tls(config)
        check_safe(config, option=option)
        token = token or secrets.token_urlsafe(32)
        tokens: dict[str, Scope] = {token: "admin"}
        if config.http_token_file:
            tokens[_token(config.http_token_file, "http_token_file")] = "read"
        if config.http_admin_token_file:
            admin = _token(config.http_admin_token_file, "http_admin_token_file")
            if tokens.get(admin) == "read":
                raise ConfigError(
                    "http_token_file and http_admin_token_file have the same token",
                    hint="Whoever may read could pause too: make another by `openssl rand -hex 32`",
                )
            tokens[admin] = "admin"
        names = [*config.http_hosts, *([] if is_loopback(host) else [socket.gethostname(), host])]
        return cls(
            host=host,
            port=port,
            access=Access.of(tokens, hosts=names),
            token=token,
            tls=tls,
            certificate=str(Path(config.http_tls_certificate_file).resolve()) if tls else "",
            hosts=config.http_hosts,
            option=option,
        )

    def bind(self) -> socket.socket:
        """The socket, listening. Raises `ConfigError` if the address cannot be had."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # Named, since asyncio sends small packets at once only where it sees that this is TCP: else
        # every answer waits 40 ms for the client to confirm its first half.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
            listener.listen(socket.SOMAXCONN)
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"Option {self.option} is {self.host}:{self.port}, which cannot be had: "
                f"{error.strerror or error}",
                hint="Use another port; 0 takes one that is free",
            ) from error
        return listener

    def url(self, port: int) -> str:
        """The address to ask at, by a name that the certificate should have."""
        # Where several hosts share the options, each is called by its own name.
        own = socket.gethostname()
        host = own if own in self.hosts else self.hosts[0] if self.hosts else self.host
        if host in _WILDCARDS:
            host = socket.gethostname()
        return self._url(host, port)

    def local_url(self, port: int) -> str:
        """The address to ask at on this machine, where no name need be known."""
        loopback = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - see above
        return self._url(loopback.get(self.host, self.host), port)

    def _url(self, host: str, port: int) -> str:
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{shown}:{port}"


def check_safe(config: Config, *, option: str) -> None:
    """Refuse an address that others can reach without TLS and a token. Raises `ConfigError`."""
    if is_loopback(parse_address(config.http_listen)[0]):
        return
    missing = [
        name
        for name in ("http_tls_certificate_file", "http_tls_key_file", "http_token_file")
        if not getattr(config, name)
    ]
    if missing:
        raise ConfigError(
            f"Option {option} is {config.http_listen!r}, which others can reach, and "
            f"{missing[0]} is not set",
            hint="Beyond this machine it takes TLS and a token. Set http_tls_certificate_file, "
            "http_tls_key_file and http_token_file; or listen on 127.0.0.1",
        )


def _tls(config: Config) -> ssl.SSLContext | None:
    certificate, key = config.http_tls_certificate_file, config.http_tls_key_file
    clients = config.http_tls_client_ca_file
    if not certificate and not key and not clients:
        return None
    if not certificate or not key:
        raise ConfigError(
            "Of http_tls_certificate_file and http_tls_key_file one is not set",
            hint="Set both, to PEM files; without, clients cannot be known by certificates either",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without one, whoever starts the application is asked for it, and it waits for ever.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The TLS files cannot be used: {error.strerror or error}",
            where={"certificate": certificate, "key": key},
            hint="Give PEM files that this user can read, the key without a password",
        ) from error
    if clients:
        _verify_clients(context, clients)
    return context


def _verify_clients(context: ssl.SSLContext, authority: str) -> None:
    try:
        context.load_verify_locations(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The CA of clients cannot be used: {error.strerror or error}",
            where={"http_tls_client_ca_file": authority},
            hint="Give a PEM file that this user can read",
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED


def _token(file: str, option: str) -> str:
    """The one line of a file. Raises `ConfigError`, which never shows it."""
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(
            f"Option {option} names {file!r}, which cannot be read: {reason}",
            hint=f"Make it: openssl rand -hex 32 > {file} && chmod 600 {file}",
        ) from None
    return check_token(text, option)
