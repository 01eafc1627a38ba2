"""Asking an application over HTTP: `Client`, and `AsyncClient` for programs of coroutines.

Both ask what `Queries` can be asked. Keys and values are what JSON has, by the rule in
`penstock.queries.json_values`; `table` gives the bytes instead.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import pyarrow as pa
import urllib3

from penstock.config import usual_state_dir
from penstock.errors import (
    ClientCertificateError,
    ConfigError,
    QueryError,
    QuestionRefusedError,
    ServiceUnreachableError,
)
from penstock.instance.tls import load_pair
from penstock.queries.access import is_loopback
from penstock.queries.arrow_rows import ARROW_STREAM, decode_rows
from penstock.queries.contract import (
    Answer,
    Bound,
    KeyMetadata,
    PartitionLag,
    Question,
    Row,
    Source,
    StoreDescription,
)
from penstock.queries.driver_file import DriverFile, read_driver_file
from penstock.queries.failures import error_of
from penstock.queries.json_values import VALUES_JSON, encode_json, plain
from penstock.serdes.decoders import decoder

T = TypeVar("T")
_MILLISECOND = timedelta(milliseconds=1)
_GRACE = timedelta(seconds=2)
"""The service keeps to the deadline itself, and says more when it is missed."""
_ATTEMPTS = 2
_HTTPS_PORT = 443
_PROBE_SECONDS = 2.0
_OK = 200

_TRUST = {
    10: "It has expired: have the service renew it",
    62: "Call the service by a name that is in it",
    64: "Call the service by an address that is in it, or by a name",
}
"""What to do about a service's certificate, by OpenSSL's codes."""


@dataclass(frozen=True, kw_only=True)
class ArrowAnswer:
    """Rows as the bytes that a store holds, who gave them, and how to go on."""

    table: pa.Table
    sources: list[Source]
    next_page: str | None


class Client:
    """Asks one application; any thread may use it, and it is itself `Queries`.

    `ca_file` is trusted instead of the system's certificates; `certificate_file` and `key_file` are
    what it shows, if the service wants that. With `any_name`, `ca_file` is the service's own
    certificate, and may bear another name than the address has. Raises `ConfigError` for an address
    to which a token would go in the clear, and `QueryError` and its kinds when asked.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str,
        ca_file: str | Path | None = None,
        certificate_file: str | Path | None = None,
        key_file: str | Path | None = None,
        any_name: bool = False,
        timeout: timedelta = timedelta(seconds=5),
        connections: int = 8,
    ) -> None:
        self._url = _checked(url)
        self._timeout = timeout
        bearer = f"Bearer {_checked_token(token)}"
        self._headers = {"authorization": bearer, "content-type": "application/json"}
        self._tls: ssl.SSLContext | None = None
        if self._url.startswith("https:"):
            self._tls = _tls(ca_file, certificate_file, key_file, any_name=any_name)
        tls: Any = {} if self._tls is None else {"ssl_context": self._tls}
        if any_name:
            tls["assert_hostname"] = False
        self._pool = urllib3.PoolManager(maxsize=connections, block=True, retries=False, **tls)
        self._host: urllib3.HTTPConnectionPool | None = None

    @classmethod
    def of_application(
        cls, application_id: str, *, state_dir: Path | None = None, **options: Any
    ) -> Self:
        """Ask the application with this id that runs on this machine."""
        found = read_driver_file(state_dir or usual_state_dir(), application_id)
        return cls(token=found.token, **_address_of(found), **options)

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def stores(self) -> list[StoreDescription]:
        """All stores, by name."""
        return [StoreDescription(**each) for each in self._get("/v1/stores")["stores"]]

    def get(self, store: str, key: Any, *, bound: Bound = Bound()) -> Any:  # noqa: B008 - frozen
        """A key's value; None if there is none."""
        return self.get_many(store, [key], bound=bound)[0]

    def get_many(
        self,
        store: str,
        keys: Sequence[Any],
        *,
        bound: Bound = Bound(),  # noqa: B008 - frozen
    ) -> list[Any]:
        """The values of these keys, in their order, in one request unless they are very large."""
        question = Question(kind="get", keys=tuple(keys))
        values: list[Any] = []
        while True:
            body = _body(question, bound, self._timeout, as_text=False)
            told = _values(
                self._request("POST", f"{_path(store)}/query", body, None, accept=VALUES_JSON)
            )
            values += told.values
            if told.next_page is None:
                return values
            question = replace(question, page=told.next_page)

    def ask(
        self,
        store: str,
        question: Question,
        *,
        bound: Bound = Bound(),  # noqa: B008 - frozen
        timeout: timedelta | None = None,
        as_text: bool = False,
    ) -> Answer:
        """The answer of whoever holds the state; with `as_text` keys are texts, as in addresses."""
        body = _body(question, bound, timeout or self._timeout, as_text)
        data = self._post(f"{_path(store)}/query", body, timeout)
        return Answer(
            rows=[Row(**each) for each in data["rows"]],
            sources=_sources(data),
            next_page=data["next_page"],
        )

    def rows(
        self,
        store: str,
        question: Question,
        *,
        bound: Bound = Bound(),  # noqa: B008 - frozen
    ) -> Iterator[Row]:
        """The rows of all pages, one after the other."""
        while True:
            answer = self.ask(store, question, bound=bound)
            yield from answer.rows
            if answer.next_page is None:
                return
            question = replace(question, page=answer.next_page)

    def table(
        self,
        store: str,
        question: Question,
        *,
        bound: Bound = Bound(),  # noqa: B008 - frozen
        timeout: timedelta | None = None,
    ) -> ArrowAnswer:
        """A page of rows as Arrow columns of bytes: see `penstock.queries.arrow_rows`."""
        body = _body(question, bound, timeout or self._timeout, as_text=False)
        data = self._request("POST", f"{_path(store)}/query", body, timeout, accept=ARROW_STREAM)
        table, facts = decode_rows(data)
        return ArrowAnswer(table=table, sources=_sources(facts), next_page=facts["next_page"])

    def approximate_count(
        self,
        store: str,
        *,
        bound: Bound = Bound(),  # noqa: B008 - frozen
        timeout: timedelta | None = None,
    ) -> int:
        """About how many entries a store holds in all its partitions."""
        if bound.position:
            hint = "Say stale=True or max_lag=, or ask in the application's own process"
            raise QuestionRefusedError("Over HTTP a count is of no position", hint=hint)
        lag = "" if bound.max_lag is None else f"&max_lag={bound.max_lag}"
        stale = "true" if bound.stale else "false"
        wait = max((timeout or self._timeout) // _MILLISECOND, 1)
        path = f"{_path(store)}/count?stale={stale}{lag}&timeout_ms={wait}"
        return int(_data(self._request("GET", path, None, timeout))["approximate_count"])

    def key_metadata(self, store: str, key: Any) -> KeyMetadata:
        """Where a key lives."""
        shown = plain(key)
        text = shown if isinstance(shown, str) else encode_json(shown).decode()
        data = self._get(f"{_path(store)}/metadata/{_quoted(text)}")
        return KeyMetadata(**{**data, "standbys": tuple(data["standbys"])})

    def lags(self) -> list[PartitionLag]:
        """How far every copy of every store is behind."""
        known = [dict(each) for each in self._get("/v1/lags")["lags"]]
        return [
            PartitionLag(**{name: value for name, value in each.items() if name != "lag"})
            for each in known
        ]

    def instances(self) -> dict[str, str]:
        """Where the instances are that answer too, by name."""
        return {each["name"]: each["url"] for each in self._get("/v1/instances")["instances"]}

    def close(self) -> None:
        """Close the connections."""
        self._host = None
        self._pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _connections(self) -> urllib3.HTTPConnectionPool:
        """Those to the service: found once, for that takes as long as some questions."""
        host = self._host
        if host is None:
            host = self._host = self._pool.connection_from_url(self._url)
        return host

    def _get(self, path: str) -> Any:
        return _data(self._request("GET", path, None, None))

    def _post(self, path: str, body: bytes, timeout: timedelta | None) -> Any:
        return _data(self._request("POST", path, body, timeout))

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        timeout: timedelta | None,
        *,
        accept: str = "application/json",
    ) -> bytes:
        """The body of an answer that is one; a connection that was closed meanwhile is made anew.

        All requests here only read, so that asking twice does no harm.
        """
        end = time.monotonic() + ((timeout or self._timeout) + _GRACE).total_seconds()
        for attempt in range(_ATTEMPTS):
            try:
                response = self._connections().urlopen(
                    method,
                    path,
                    body=body,
                    headers={**self._headers, "accept": accept},
                    timeout=urllib3.Timeout(total=max(end - time.monotonic(), 0.001)),
                    retries=False,
                    redirect=False,
                )
            except urllib3.exceptions.ProtocolError as error:
                if attempt + 1 == _ATTEMPTS:
                    raise self._unreachable(error) from error
            except urllib3.exceptions.HTTPError as error:
                raise self._unreachable(error) from error
            else:
                if response.status != _OK:
                    raise error_of(_decoded(response.data))
                return bytes(response.data)
        raise AssertionError  # The last attempt returns or raises.

    def _refusal(self) -> str:
        """What the service did with a connection on which nothing was asked yet; empty if it waits.

        Python's own servers hang up on a certificate that they do not take, and others say why.
        """
        if self._tls is None:
            return ""
        parts = urlsplit(self._url)
        address = (parts.hostname or "", parts.port or _HTTPS_PORT)
        try:
            with (
                socket.create_connection(address, timeout=_PROBE_SECONDS) as plain,
                self._tls.wrap_socket(plain, server_hostname=parts.hostname) as connection,
            ):
                if not connection.recv(1):
                    return "it hung up as soon as the connection was made"
        except ssl.SSLError as error:
            reason = error.reason or ""
            return reason.replace("_", " ").lower() if "ALERT" in reason else ""
        except OSError:
            pass
        return ""

    def _unreachable(self, error: Exception) -> QueryError:
        refused = self._refusal()
        if refused:
            return ClientCertificateError(
                f"The service does not take this client's certificate, or misses one: {refused}",
                where={"url": self._url},
                hint="Give certificate_file and key_file, of a certificate that the service's "
                "http_tls_client_ca_file signed and that has not expired",
            )
        reason = getattr(error, "reason", None) or error
        where = {"url": self._url}
        untrusted = _untrusted(error)
        if untrusted is not None:
            message = f"Its certificate is not trusted: {untrusted.verify_message.rstrip('.')}"
            return ServiceUnreachableError(message, where=where, hint=_trust(untrusted))
        hint = "Does the application run, and is the address right?"
        if self._tls is None and isinstance(error, urllib3.exceptions.ProtocolError):
            hint = "Does it speak TLS? Then its address begins with https"
        message = f"No answer: {type(reason).__name__}: {_first_line(reason)}"
        return ServiceUnreachableError(message, where=where, hint=hint)


class AsyncClient:
    """The same for programs of coroutines: each method of `Client`, to be awaited, and `rows` to
    be gone through by `async for`.

    As many questions are under way at once as there are connections.
    """

    def __init__(self, url: str, *, token: str, connections: int = 8, **options: Any) -> None:
        self._client = Client(url, token=token, connections=connections, **options)
        self._threads = ThreadPoolExecutor(connections, "penstock-client")

    @classmethod
    def of_application(
        cls, application_id: str, *, state_dir: Path | None = None, **options: Any
    ) -> Self:
        """Ask the application with this id that runs on this machine."""
        found = read_driver_file(state_dir or usual_state_dir(), application_id)
        return cls(token=found.token, **_address_of(found), **options)

    async def stores(self) -> list[StoreDescription]:
        """All stores, by name."""
        return await self._run(self._client.stores)

    async def get(self, store: str, key: Any, **options: Any) -> Any:
        """A key's value; None if there is none."""
        return await self._run(partial(self._client.get, store, key, **options))

    async def get_many(self, store: str, keys: Sequence[Any], **options: Any) -> list[Any]:
        """The values of these keys, in their order, in one request."""
        return await self._run(partial(self._client.get_many, store, keys, **options))

    async def ask(self, store: str, question: Question, **options: Any) -> Answer:
        """The answer of whoever holds the state."""
        return await self._run(partial(self._client.ask, store, question, **options))

    async def rows(self, store: str, question: Question, **options: Any) -> AsyncIterator[Row]:
        """The rows of all pages, one after the other."""
        while True:
            answer = await self.ask(store, question, **options)
            for row in answer.rows:
                yield row
            if answer.next_page is None:
                return
            question = replace(question, page=answer.next_page)

    async def table(self, store: str, question: Question, **options: Any) -> ArrowAnswer:
        """A page of rows as Arrow columns of bytes."""
        return await self._run(partial(self._client.table, store, question, **options))

    async def approximate_count(self, store: str, **options: Any) -> int:
        """About how many entries a store holds in all its partitions."""
        return await self._run(partial(self._client.approximate_count, store, **options))

    async def key_metadata(self, store: str, key: Any) -> KeyMetadata:
        """Where a key lives."""
        return await self._run(partial(self._client.key_metadata, store, key))

    async def lags(self) -> list[PartitionLag]:
        """How far every copy of every store is behind."""
        return await self._run(self._client.lags)

    async def instances(self) -> dict[str, str]:
        """Where the instances are that answer too, by name."""
        return await self._run(self._client.instances)

    async def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False)
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _body(question: Question, bound: Bound, timeout: timedelta, as_text: bool) -> bytes:
    fields = asdict(replace(question, keys=(), lower=None, upper=None, prefix=None))
    fields |= {
        "keys": _plain_keys(question.keys),
        "lower": plain(question.lower),
        "upper": plain(question.upper),
        "prefix": plain(question.prefix),
        "stale": bound.stale,
        "max_lag": bound.max_lag,
        "position": {str(partition): offset for partition, offset in bound.position.items()},
        "timeout_ms": max(timeout // _MILLISECOND, 1),
        "as_text": as_text,
    }
    return encode_json({name: value for name, value in fields.items() if value is not None})


def _plain_keys(keys: Sequence[Any]) -> list[Any]:
    if set(map(type, keys)) == {bytes}:
        # As `plain` does it, without a call for each.
        return ["0x" + key.hex() for key in keys]
    return [plain(key) for key in keys]


def _sources(data: Mapping[str, Any]) -> list[Source]:
    return [
        Source(
            partition=each["partition"],
            instance=each["instance"],
            role=each["role"],
            position=each["position"],
            age=each["age_ms"] * _MILLISECOND,
        )
        for each in data["sources"]
    ]


def _decoded(data: bytes) -> Any:
    try:
        return decoder(object).decode(data)
    except msgspec.DecodeError:
        return None


def _data(body: bytes) -> Any:
    answer = _decoded(body)
    if not isinstance(answer, dict) or "data" not in answer:
        raise _not_ours()
    return answer["data"]


def _not_ours() -> QueryError:
    return QueryError("The answer is none of ours", hint="Is that address one of Penstock's?")


class _Values(msgspec.Struct):
    """A page of values."""

    values: list[Any]
    next_page: str | None


class _ValuesTold(msgspec.Struct):
    """The answer that has them."""

    data: _Values


def _values(body: bytes) -> _Values:
    try:
        return decoder(_ValuesTold).decode(body).data
    except msgspec.DecodeError:
        raise _not_ours() from None


def _path(store: str) -> str:
    return f"/v1/stores/{_quoted(store)}"


def _quoted(text: str) -> str:
    # Dots too: a path of dots would be taken for directories.
    return quote(text, safe="", errors="surrogatepass").replace(".", "%2E")


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port  # What is none raises too.
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{url!r} is no address", hint="Write http://HOST:PORT, or https")
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(
            f"To {url!r} the token would go in the clear", hint="Use https beyond this machine"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _checked_token(token: str) -> str:
    """The token, if it can be one; else an error that does not tell it."""
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise ConfigError(
            "What was given as the token is none",
            hint="It is one word: what the service has in http_token_file, or driver.json has",
        )
    return token


def _address_of(found: DriverFile) -> dict[str, Any]:
    """Where a driver of this machine is asked, and by what it is known.

    Whoever may read its file trusts that one certificate, whatever name others know it by.
    """
    if not found.certificate:
        return {"url": found.local_url or found.url}
    if not found.local_url:
        return {"url": found.url, "ca_file": found.certificate}
    return {"url": found.local_url, "ca_file": found.certificate, "any_name": True}


def _tls(
    ca_file: str | Path | None,
    certificate_file: str | Path | None = None,
    key_file: str | Path | None = None,
    *,
    any_name: bool = False,
) -> ssl.SSLContext:
    try:
        if any_name and ca_file is not None:
            context = ssl.create_default_context(cadata=_first_certificate(ca_file))
            context.check_hostname = False
        else:
            context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{str(ca_file)!r} cannot be used: {_first_line(error)}",
            hint="Give a PEM file with the certificate of the CA, which this user can read",
        ) from error
    if ca_file is not None:
        # The certificate itself may be given, and not only that of its CA.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if certificate_file is not None:
        load_pair(context, certificate_file, key_file)
    return context


def _untrusted(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """What is wrong with the service's certificate, if that is what failed."""
    found: object = error
    while isinstance(found, BaseException):
        if isinstance(found, ssl.SSLCertVerificationError):
            return found
        found = found.__cause__ or found.__context__ or next(iter(found.args), None)
    return None


def _trust(problem: ssl.SSLCertVerificationError) -> str:
    unknown = "Give the certificate of the CA that signed it as ca_file"
    return _TRUST.get(problem.verify_code, unknown)


def _first_certificate(file: str | Path) -> str:
    """The one that a service shows, without those behind it in the file: others have these too."""
    before, end, _ = Path(file).read_text().partition("-----END CERTIFICATE-----")
    return before + end


def _first_line(error: object) -> str:
    return next(iter(str(error).splitlines()), "")
