"""Avro, JSON Schema and Protobuf with a schema registry, by confluent-kafka's own serializers.

    byte 0       0
    bytes 1-4    the schema's number in the registry, big-endian
    then         the value (Protobuf: before it, which message of the file it is)

A serde travels to workers as a description. Client, serializer and deserializer are made where
they are first used, once per process. The packages for it come with `penstock[registry]`.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from penstock.errors import LocalPartsError, SchemaRegistryError, TopologyError
from penstock.hidden import without_secrets
from penstock.serdes.contract import RecordPart, Serde
from penstock.serdes.decoders import converted
from penstock.serdes.json import check_json_type

T = TypeVar("T")

# Avro has types of its own for these, so they must not become text on the way.
_AVRO_VALUES = (bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID)
# Of a schema: the registry's code, and that of confluent-kafka's registry in memory.
_NOT_FOUND = (40403, 40400)
_BY_TOPIC = "TOPIC"
_BY_RECORD = "RECORD"


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry's address, and confluent-kafka's options for reaching it.

    >>> SchemaRegistry("https://registry:8081", {"basic.auth.user.info": "me:secret"})
    SchemaRegistry(url='https://registry:8081')
    """

    url: str
    # Not shown: passwords are among them.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def __repr__(self) -> str:
        return f"SchemaRegistry(url={without_secrets(self.url)!r})"


class _Pair(NamedTuple):
    """What writes and what reads, as confluent-kafka has them, and the topic and part for both."""

    serializer: Callable[[Any, Any], bytes]
    deserializer: Callable[[bytes, Any], Any]
    context: Any


@dataclass(frozen=True, kw_only=True)
class RegistrySerde(Serde[T], Generic[T]):
    """What the three formats share; subjects are named after topic and part, as Java names them.

    `subject` names another one. `write_options` and `read_options` are those of confluent-kafka's
    serializers, such as `{"auto.register.schemas": False, "use.latest.version": True}`.
    """

    registry: str | SchemaRegistry
    subject: str | None = None
    write_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    read_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    # Both are set by `for_topic`.
    topic: str | None = None
    part: RecordPart = "value"

    def __post_init__(self) -> None:
        # While the topology is built, not on the first record.
        self._check(self._load())

    def for_topic(self, topic: str, part: RecordPart) -> RegistrySerde[T]:
        return replace(self, topic=topic, part=part)

    def serialize(self, value: T) -> bytes:
        if self.topic is None and self._subject_needs_topic():
            raise TopologyError(
                f"The serde {self.name!r} does not know for which topic it writes",
                hint='Call for_topic(topic, "key" or "value") on it, or name a subject=',
            )
        pair = _opened(self)
        try:
            return pair.serializer(self._plain(value), pair.context)
        except Exception as error:
            raise _named(self, error, reading=False) from error

    def deserialize(self, data: bytes) -> T:
        pair = _opened(self)
        try:
            return self._typed(pair.deserializer(data, pair.context))
        except Exception as error:
            raise _named(self, error, reading=True) from error

    @abstractmethod
    def _load(self) -> Any:
        """confluent-kafka's module for this format; raises `LocalPartsError` if it is not there."""

    @abstractmethod
    def _check(self, module: Any) -> None:
        """Raise `TopologyError` for a schema that is none."""

    @abstractmethod
    def _open(self, module: Any, client: Any) -> tuple[Any, Any]:
        """The serializer and the deserializer, with this client."""

    def _plain(self, value: T) -> Any:
        """The value as the serializer takes it."""
        return value

    def _typed(self, value: Any) -> T:
        """The value as the topology's functions see it."""
        typed: T = value
        return typed

    def _subject_needs_topic(self) -> bool:
        by = str(self.write_options.get("subject.name.strategy.type", _BY_TOPIC))
        return self.subject is None and by.upper() != _BY_RECORD

    def _naming(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with how subjects are named, which never takes a question to the registry."""
        subject = self.subject
        if subject is not None:
            return {**options, "subject.name.strategy": lambda context, record: subject}
        if self.topic is None:
            # Reading does without; a subject made of no topic must not be asked for.
            by_number: dict[str, Any] = {"subject.name.strategy": lambda context, record: None}
            named = any(option.startswith("subject.name.strategy") for option in options)
            return dict(options) if named else {**options, **by_number}
        return {"subject.name.strategy.type": _BY_TOPIC, **options}


@dataclass(frozen=True)
class AvroSerde(RegistrySerde[T]):
    """Values as Avro; `type` is a dataclass or msgspec Struct, or else values are dicts.

    `schema` is the schema's JSON, by which values are written, and read whatever older or newer
    schema they were written by.
    """

    schema: str
    type: Any = dict
    name: ClassVar[str] = "avro"

    def _load(self) -> Any:
        return _module("confluent_kafka.schema_registry.avro")

    def _check(self, module: Any) -> None:
        check_json_type(self.type)
        with _schema_errors(self):
            # confluent-kafka has parsed nothing yet: it would, on the first record.
            _module("fastavro").parse_schema(json.loads(self.schema))

    def _open(self, module: Any, client: Any) -> tuple[Any, Any]:
        return (
            module.AvroSerializer(client, self.schema, conf=self._naming(self.write_options)),
            module.AvroDeserializer(client, self.schema, conf=self._naming(self.read_options)),
        )

    def _plain(self, value: T) -> Any:
        if self.type is dict:
            return value
        return msgspec.to_builtins(value, builtin_types=_AVRO_VALUES)

    def _typed(self, value: Any) -> T:
        typed: T = value if self.type is dict else converted(value, self.type)
        return typed


@dataclass(frozen=True)
class JsonSchemaSerde(RegistrySerde[T]):
    """Values as JSON that a schema checks; `type` as for `AvroSerde`.

    `schema` is the JSON Schema's text; the registry wants a `title` in it.
    """

    schema: str
    type: Any = dict
    name: ClassVar[str] = "json-schema"

    def _load(self) -> Any:
        return _module("confluent_kafka.schema_registry.json_schema")

    def _check(self, module: Any) -> None:
        check_json_type(self.type)
        with _schema_errors(self):
            schema = json.loads(self.schema)
            _module("jsonschema").validators.validator_for(schema).check_schema(schema)

    def _open(self, module: Any, client: Any) -> tuple[Any, Any]:
        writing, reading = self._naming(self.write_options), self._naming(self.read_options)
        return (
            module.JSONSerializer(self.schema, client, conf=writing),
            module.JSONDeserializer(self.schema, schema_registry_client=client, conf=reading),
        )

    def _plain(self, value: T) -> Any:
        return value if self.type is dict else msgspec.to_builtins(value)

    def _typed(self, value: Any) -> T:
        typed: T = value if self.type is dict else converted(value, self.type)
        return typed


@dataclass(frozen=True)
class ProtobufSerde(RegistrySerde[T]):
    """Messages of a class that `protoc` made; its module must be there on the workers too."""

    message: type[T]
    name: ClassVar[str] = "protobuf"

    def _load(self) -> Any:
        return _module("confluent_kafka.schema_registry.protobuf")

    def _check(self, module: Any) -> None:
        if not hasattr(self.message, "DESCRIPTOR"):
            raise TopologyError(
                f"{self.message!r} is no Protobuf message",
                hint="Pass a class from the module that protoc made of the .proto file",
            )

    def _open(self, module: Any, client: Any) -> tuple[Any, Any]:
        writing, reading = self._naming(self.write_options), self._naming(self.read_options)
        return (
            module.ProtobufSerializer(self.message, client, conf=writing),
            module.ProtobufDeserializer(self.message, reading, schema_registry_client=client),
        )


class _Process:
    """What this process has opened: a client for each registry, a pair for each serde."""

    lock: threading.RLock
    clients: list[tuple[SchemaRegistry, Any]]
    pairs: dict[RegistrySerde[Any], _Pair]

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: two processes must not talk over one connection, nor share a held lock."""
        self.lock = threading.RLock()
        self.clients = []
        self.pairs = {}


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


def _opened(serde: RegistrySerde[Any]) -> _Pair:
    pair = _process.pairs.get(serde)
    if pair is None:
        with _process.lock:
            pair = _process.pairs.get(serde)
            if pair is None:
                pair = _process.pairs[serde] = _open(serde)
    return pair


def _open(serde: RegistrySerde[Any]) -> _Pair:
    module, contexts = serde._load(), _module("confluent_kafka.serialization")  # noqa: SLF001
    try:
        serializer, deserializer = serde._open(module, _client(serde.registry))  # noqa: SLF001
    except (TypeError, ValueError) as error:
        # As a ValueError it would pass for a record that cannot be decoded, and be skipped.
        raise TopologyError(
            f"The serde {serde.name!r} cannot be used: {error}",
            hint="See confluent-kafka's options for this serializer and for its registry client",
        ) from error
    context = contexts.SerializationContext(serde.topic or "", serde.part)
    return _Pair(serializer, deserializer, context)


def _client(where: str | SchemaRegistry) -> Any:
    registry = SchemaRegistry(where) if isinstance(where, str) else where
    for known, client in _process.clients:
        if known == registry:
            return client
    module = _module("confluent_kafka.schema_registry")
    client = module.SchemaRegistryClient.new_client({"url": registry.url, **registry.options})
    _process.clients.append((registry, client))
    return client


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LocalPartsError(
            f"Serdes with a schema registry need packages that are not here: {error}",
            hint="Install them: pip install 'penstock[registry]'",
        ) from error


@contextmanager
def _schema_errors(serde: RegistrySerde[Any]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise TopologyError(
            f"The schema of serde {serde.name!r} is none: {type(error).__name__}: {error}",
            hint="Pass the schema's text, as it is in the registry",
        ) from error


def _named(serde: RegistrySerde[Any], error: Exception, *, reading: bool) -> Exception:
    """Our error for theirs: a bad value is the record's fault, a silent registry is not."""
    theirs = _module("confluent_kafka.schema_registry.error")
    # The HTTP client's name differs between releases; this is the one that raises.
    http = _module("confluent_kafka.schema_registry.common._httpx_compat").httpx
    if isinstance(error, theirs.SchemaRegistryError):
        if reading and error.error_code in _NOT_FOUND:
            return ValueError(f"its schema is not in the registry: {error}")
        return _unhelpful(serde, error)
    if isinstance(error, (http.HTTPError, theirs.OAuthTokenError, OSError)):
        return _unhelpful(serde, error)
    return ValueError(f"{type(error).__name__}: {error}")


def _unhelpful(serde: RegistrySerde[Any], error: Exception) -> SchemaRegistryError:
    url = serde.registry if isinstance(serde.registry, str) else serde.registry.url
    return SchemaRegistryError(
        f"The schema registry did not do what serde {serde.name!r} needs: "
        f"{without_secrets(str(error))}",
        where={"registry": without_secrets(url), "topic": serde.topic, "part": serde.part},
        hint="Nothing was committed; mend the address, the rights or the schema and start again",
    )
