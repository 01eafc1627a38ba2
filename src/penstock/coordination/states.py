"""The states of an application, and the ways between them.

created ──────▶ rebalancing ◀──▶ running
   │             │       │        │   │
   │             ▼       └────┐   │   │
   └──▶ pending_shutdown ◀────┼───┘   │
                 │            ▼       │
                 ▼      pending_error ◀
           not_running        │
                              ▼
                            error
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from penstock.errors import StateTransitionError


class ApplicationState(StrEnum):
    """Where an application is between its making and its end; the names are Kafka Streams'."""

    CREATED = "created"
    REBALANCING = "rebalancing"
    """Starting, or a task has no owner, or one that does not serve it yet. Other tasks go on."""
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending_shutdown"
    NOT_RUNNING = "not_running"
    PENDING_ERROR = "pending_error"
    ERROR = "error"


_S = ApplicationState

TRANSITIONS: Mapping[ApplicationState, frozenset[ApplicationState]] = {
    _S.CREATED: frozenset({_S.REBALANCING, _S.PENDING_SHUTDOWN}),
    _S.REBALANCING: frozenset({_S.RUNNING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR}),
    _S.RUNNING: frozenset({_S.REBALANCING, _S.RUNNING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR}),
    _S.PENDING_SHUTDOWN: frozenset({_S.NOT_RUNNING}),
    _S.NOT_RUNNING: frozenset(),
    _S.PENDING_ERROR: frozenset({_S.ERROR}),
    _S.ERROR: frozenset(),
}
"""Where each state can go."""


def check_transition(old: ApplicationState, new: ApplicationState) -> None:
    """Raise `StateTransitionError` unless an application can go from one state to the other.

    >>> check_transition(ApplicationState.CREATED, ApplicationState.REBALANCING)
    """
    if new not in TRANSITIONS[old]:
        possible = ", ".join(state for state in ApplicationState if state in TRANSITIONS[old])
        raise StateTransitionError(
            f"An application that is {old} cannot become {new}",
            hint=f"From there it can become: {possible}"
            if possible
            else "It has ended; make a new Application",
        )


def ending_of(state: ApplicationState, *, failed: bool) -> ApplicationState | None:
    """The state in which an application that ends now lets go of what it holds; None if it does.

    One that fails while it shuts down has shut down all the same: that way alone is open.

    >>> ending_of(ApplicationState.RUNNING, failed=True)
    <ApplicationState.PENDING_ERROR: 'pending_error'>
    >>> ending_of(ApplicationState.PENDING_SHUTDOWN, failed=True)
    """
    new = _S.PENDING_ERROR if failed else _S.PENDING_SHUTDOWN
    return new if new in TRANSITIONS[state] else None


def end_of(state: ApplicationState) -> ApplicationState:
    """The last state of an application that has let go of everything.

    >>> end_of(ApplicationState.PENDING_ERROR)
    <ApplicationState.ERROR: 'error'>
    """
    return _S.ERROR if state is _S.PENDING_ERROR else _S.NOT_RUNNING
