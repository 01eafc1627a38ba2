"""Who may ask: tokens with scopes, and the names by which the service may be called.

A page that is open in a browser can send requests to this machine. It does not know the token; that
its host and origin are looked at as well keeps it from learning even that something answers.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self
from urllib.parse import urlsplit

from penstock.errors import ConfigError

Scope = Literal["read", "admin"]
TOKEN_LENGTH_MIN = 32
_TOKEN_LENGTH_MAX = 4096
_NOTHING: frozenset[Scope] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Access:
    """The tokens that are let in, and the names by which the service may be called.

    Only the digests of tokens are kept: whoever prints or logs this shows none.

    >>> token = "t" * 32
    >>> access = Access.of({token: "read"})
    >>> sorted(access.scopes_of(f"Bearer {token}")), sorted(access.scopes_of("Bearer other"))
    (['read'], [])
    """

    digests: Mapping[bytes, frozenset[Scope]] = field(repr=False)
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tokens: Mapping[str, Scope], *, hosts: Iterable[str] = ()) -> Self:
        """Let these tokens in, each with its scope; admin may read too. Raises `ConfigError`."""
        for token, scope in tokens.items():
            check_token(token, scope)
        digests = {_digest(token): _granted(scope) for token, scope in tokens.items()}
        return cls(digests=digests, hosts=frozenset(host.lower() for host in hosts))

    def scopes_of(self, authorization: str | None) -> frozenset[Scope]:
        """What the bearer of this header may do; nothing without it or with a wrong one."""
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or len(token) > _TOKEN_LENGTH_MAX:
            return _NOTHING
        given, found = _digest(token.strip()), _NOTHING
        # All are compared, each in constant time: how long it takes tells nothing.
        for digest, scopes in self.digests.items():
            if hmac.compare_digest(digest, given):
                found = scopes
        return found

    def allows_host(self, host: str | None) -> bool:
        """Whether a request to this `Host` is for us, and not for a name bound to our address.

        An address cannot be such a name, whoever it belongs to.

        >>> access = Access.of({}, hosts=["queries.example.org"])
        >>> [access.allows_host(each) for each in ("[::1]:80", "queries.example.org", "evil.org")]
        [True, True, False]
        """
        name = _host_name(host or "")
        return name == "localhost" or name in self.hosts or _is_address(name)

    def allows_origin(self, origin: str | None, host: str | None) -> bool:
        """Whether the page that sent a request, if it was one, is of this service itself.

        >>> access = Access.of({})
        >>> access.allows_origin("http://localhost:80", "localhost:80")
        True
        >>> access.allows_origin("null", "localhost:80")
        False
        """
        if origin is None:
            return True
        try:
            return bool(host) and urlsplit(origin).netloc.lower() == (host or "").lower()
        except ValueError:
            return False


def check_token(token: str, what: str) -> str:
    """The token, if it cannot be guessed and can be sent. Raises `ConfigError`, without it."""
    if not TOKEN_LENGTH_MIN <= len(token) <= _TOKEN_LENGTH_MAX or not token.isascii():
        raise ConfigError(
            f"The {what} token has less than {TOKEN_LENGTH_MIN} characters, or odd ones",
            hint="Make one by `openssl rand -hex 32`",
        )
    if not token.isprintable() or " " in token:
        raise ConfigError(f"The {what} token has a space in it", hint="One token, on one line")
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener there.

    >>> [is_loopback(each) for each in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "10.0.0.7")]
    [True, True, True, False, False]
    """
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _granted(scope: Scope) -> frozenset[Scope]:
    return frozenset({"read", "admin"}) if scope == "admin" else frozenset({"read"})


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


@functools.lru_cache(maxsize=64)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
