"""Every error that Penstock raises, in one tree.

    PenstockError
      ConfigError                      an option is unknown or has a value that cannot work
        UsageError                     a command was given words that it cannot take
      TopologyError                    the program describes something that cannot be run
        SerdeMissingError              a type is needed to turn bytes into values
      TopologyChangedError             the program does not fit the state that an earlier one left
      BootstrapError                   a store cannot be filled from history as asked
        BootstrapUnfinishedError       one was begun and never finished: the store is half filled
      UserFunctionError                a function of the user's raised
        PartitionChoiceError           a partitioner chose a partition that its topic does not have
      DeserializationError             a record's key or value cannot be decoded
      ValueNotPutError                 a processor changed a store's value and did not put it back
      TimestampError                   a record has no valid time
      BufferFullError                  a suppress buffer that may not emit early is full
      SchemaRegistryError              a schema registry does not answer, or refuses a schema
      KafkaError                       Kafka, or something in it, is not as needed
        BrokerUnreachableError         nothing answers
        KafkaAuthenticationError       Kafka does not let this user in
        KafkaCertificateError          a certificate, Kafka's or this client's, is not taken
        TopicMissingError              a source or sink topic does not exist
        TopicMismatchError             a topic is not the one the state was made from
          PartitionCountError          its number of partitions changed
        PositionLostError              the log no longer holds a task's position
        InputLostError                 the input that a lost store is made from is not all there
        ProductionError                Kafka does not take a record that a task writes
        GroupInUseError                the consumer group has live members of another kind
        AnotherDriverError             a driver with this application id is at work
        FencedError                    a newer owner took over; this one stopped
        ChangelogError                 a changelog cannot restore the state that it should hold
      StateDirectoryError              the state directory cannot be used
        StateLockedError               another process holds it
        StatePermissionError           it cannot be read or written
        StateDiskFullError             there is no room left
        StateForeignError              another application made it
      StoreDamagedError                a store on disk is damaged
      CustomStoreError                 a store that you brought cannot be had, or failed
      StoreContractError               a store does not keep what its contract promises
      ExternalStoreError               a database that keeps a store is not as needed
        ExternalStoreUnreachableError  it does not answer, or cannot do it now
      SnapshotError                    a snapshot cannot be written, or is not what it should be
      InstanceError                    an instance cannot do what was asked
        InstanceUnreachableError       it does not answer
        TaskNotHereError               it does not hold that task under that epoch
        MemberRefusedError             a live instance has its group_instance_id already
      QueryError                       a question to an application's state has no answer
        UnknownStoreError              there is no such store
        QuestionRefusedError           the store does not answer such a question
        PageRefusedError               a page is not one that an answer to this question gave
        StoreUnavailableError          nobody who may answer did so before the deadline
        QueryLimitError                a question, or its answer, is too large
        ServiceBusyError               too many ask at once
        QueryAccessError               a token, or where a request comes from, is not let in
        ServiceUnreachableError        no service answers at that address
      ApplicationUnreachableError      an application does not run here, or does not answer
      StateTransitionError             an application cannot go from one state to another
      AssignmentError                  a task assignor failed, or said what cannot be done
      LocalPartsError                  something this machine should have is missing
        JavaMissingError               no Java 17 or later
        JvmPartsUnavailableError       jars cannot be had
        BrokerStartError               the embedded Kafka did not start

A message says what happened, where, and what to do next. The same facts are attributes: `code` for
programs, `where` (topic, partition, offset, store, task ...) and `hint`. A message is a line; what
takes more of them, such as the traceback of a user's function, is in `details`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self


class PenstockError(Exception):
    """Something Penstock can name went wrong; catch this to catch them all."""

    def __init__(
        self, message: str, *, where: Mapping[str, object] | None = None, hint: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = dict(where or {})
        self.hint = hint
        self.details = ""
        """How it came to that, in lines; in no message."""

    @property
    def code(self) -> str:
        """The error's name for programs: `BrokerUnreachableError` is `broker_unreachable`."""
        name = type(self).__name__.removesuffix("Error")
        return "".join(("_" if c.isupper() and i else "") + c.lower() for i, c in enumerate(name))

    @property
    def summary(self) -> str:
        """What happened and where, for those who already know what to do."""
        where = ", ".join(f"{k} {v}" for k, v in self.where.items())
        return f"{self.message} ({where})" if where else self.message

    def __str__(self) -> str:
        return in_sentences(self.summary, self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        # Spark carries exceptions between processes; keyword-only arguments would be lost.
        return (_rebuild, (type(self), self.message, self.where, self.hint, self.details))

    def arrived(self, details: str) -> Self:
        """The same, come from another process: Python shows the details below its traceback."""
        self.details = details
        if details:
            self.add_note(details)
        return self


def in_sentences(summary: str, hint: str) -> str:
    """What happened, and what to do next.

    >>> in_sentences("Which application?", "Name it"), in_sentences("It ended", "")
    ('Which application? Name it', 'It ended')
    """
    stop = "" if summary.endswith("?") else "."
    return f"{summary}{stop} {hint}" if hint else summary


def _rebuild(
    kind: type[PenstockError], message: str, where: Mapping[str, object], hint: str, details: str
) -> PenstockError:
    return kind(message, where=where, hint=hint).arrived(details)


class ConfigError(PenstockError):
    """An option is unknown, or its value cannot work. Yours to mend; retrying does not help."""


class UsageError(ConfigError):
    """A command was given words that it cannot take. Its exit status is 2, and nothing was done."""


class TopologyError(PenstockError):
    """The program describes something that cannot be run. Raised while building, before any I/O."""


class SerdeMissingError(TopologyError):
    """A step needs to know how a type becomes bytes, and nothing said so."""


class TopologyChangedError(PenstockError):
    """The program would leave behind or misread what an earlier one left; nothing was changed."""


class BootstrapError(PenstockError):
    """A store cannot be filled from history as asked; the message says whether anything changed."""


class BootstrapUnfinishedError(BootstrapError):
    """A store is half filled: whoever filled it from history did not come to the end."""


class UserFunctionError(PenstockError):
    """A function that you passed to an operator raised; `details` has its traceback."""


class PartitionChoiceError(UserFunctionError):
    """A partitioner of yours chose a partition that the topic does not have, or none at all."""


class DeserializationError(PenstockError):
    """A record's key or value cannot be decoded with the serde that the topology names."""


class ValueNotPutError(PenstockError):
    """A processor changed a value that a store gave it, and did not put it back.

    Only the test driver looks for it; in production the change is lost in silence.
    """


class TimestampError(PenstockError):
    """A record's time is before 1970, and nothing says what to make of that."""


class BufferFullError(PenstockError):
    """A suppress buffer that may not emit early is full."""


class SchemaRegistryError(PenstockError):
    """A schema registry does not answer, or refuses a schema. No record is at fault."""


class KafkaError(PenstockError):
    """Kafka, or something in it, is not as the application needs it."""


class BrokerUnreachableError(KafkaError):
    """Nothing answers at the bootstrap address. Worth retrying once a broker is there."""


class KafkaAuthenticationError(KafkaError):
    """Kafka does not take the user, the password or the mechanism of option `kafka`."""


class KafkaCertificateError(KafkaError):
    """The broker's certificate is not to be trusted, or it does not take this client's."""


class TopicMissingError(KafkaError):
    """A topic that the topology reads or writes does not exist."""


class TopicMismatchError(KafkaError):
    """A topic is not the one, or not shaped as the one, that the state was or can be made from."""


class PartitionCountError(TopicMismatchError):
    """A topic's number of partitions is not the one that the state was made with."""


class PositionLostError(KafkaError):
    """The log no longer holds (or never held) the offset at which a task must go on."""


class InputLostError(KafkaError):
    """A store was lost, and the input that it was to be made from again no longer holds it all."""


class ProductionError(KafkaError):
    """Kafka does not take a record that a task writes, and would not take it later either."""


class GroupInUseError(KafkaError):
    """The consumer group has live members that are not this application's driver."""


class AnotherDriverError(KafkaError):
    """A driver with the same application id is at work, here or on another machine."""


class FencedError(KafkaError):
    """A newer owner of the same id took over; this process stopped before it could do harm."""


class ChangelogError(KafkaError):
    """A changelog does not hold what the state needs from it."""


class StateDirectoryError(PenstockError):
    """The state directory cannot be used."""


class StateLockedError(StateDirectoryError):
    """Another process holds the directory's lock."""


class StatePermissionError(StateDirectoryError):
    """The directory, or something in it, cannot be read or written by this user."""


class StateDiskFullError(StateDirectoryError):
    """The file system has no room left; nothing that was committed is lost."""


class StateForeignError(StateDirectoryError):
    """The directory was made by another application."""


class StoreDamagedError(PenstockError):
    """A store on disk cannot be read; its changelog can rebuild it."""


class ExternalStoreError(PenstockError):
    """A database that keeps a store is not as the task needs it. Yours to mend."""


class ExternalStoreUnreachableError(ExternalStoreError):
    """The database does not answer, or cannot do it now. The task is taken again until it can."""


class CustomStoreError(PenstockError):
    """A store that you brought cannot be had, or one of its methods raised.

    While the task runs it is taken again, a few times; its changelog holds what was committed.
    """


class StoreContractError(PenstockError):
    """A store does not keep what its contract promises; `check_store` says which promise."""


class SnapshotError(PenstockError):
    """A snapshot cannot be written, or is not what its manifest says; changelogs hold it all."""


class InstanceError(PenstockError):
    """An instance cannot do what was asked."""


class InstanceUnreachableError(InstanceError):
    """An instance does not answer before the deadline. The task is planned again."""

    is_gone: bool = False
    """Whether its host says that nobody listens there; else it may stand still."""


class InstanceCertificateError(InstanceUnreachableError):
    """Driver or instance hung up on a caller over TLS: most likely it wants a certificate of it."""


class TaskNotHereError(InstanceError):
    """The instance does not hold that task under that epoch. The task is planned again."""


class MemberRefusedError(InstanceError):
    """A live instance has the same `group_instance_id`; this one was not let in."""


class QueryError(PenstockError):
    """A question to an application's state has no answer."""


class UnknownStoreError(QueryError):
    """The application has no store of that name that can be asked."""


class QuestionRefusedError(QueryError):
    """The store does not answer such a question. Yours to mend; asking again does not help."""


class PageRefusedError(QueryError):
    """What was given as a page is not what an answer to this question gave. Begin anew."""


class StoreUnavailableError(QueryError):
    """Nobody who may answer did so before the deadline. Worth asking again."""


class QueryLimitError(QueryError):
    """The question, or its answer, is larger than is let through. Ask for less at once."""


class ServiceBusyError(QueryError):
    """Too many ask at once. Worth asking again in a moment."""


class QueryAccessError(QueryError):
    """The token is missing or wrong, may not do this, or the request comes from elsewhere."""


class ClientCertificateError(QueryAccessError):
    """The service wants certificates of clients, and got none, or one that it does not trust."""


class StoreElsewhereError(QueryError):
    """An instance is asked for a store that only the driver can read: ask the driver."""


class ServiceUnreachableError(QueryError):
    """No service answers at that address before the deadline."""


class ApplicationUnreachableError(PenstockError):
    """The application does not run on this machine, or its driver does not answer."""


class StateTransitionError(PenstockError):
    """An application cannot go from the state that it is in to the one that was asked for."""


class AssignmentError(PenstockError):
    """A task assignor of yours failed, or its answer cannot be done. Nothing was moved."""


class LocalPartsError(PenstockError):
    """Something that this machine should have is missing."""


class JavaMissingError(LocalPartsError):
    """There is no Java 17 or later, which Spark needs."""


class JvmPartsUnavailableError(LocalPartsError):
    """The jars that Spark or the embedded Kafka need cannot be had."""


class BrokerStartError(LocalPartsError):
    """The embedded Kafka did not start."""
