"""State stores: what they promise, those of Penstock, and the shell around those of users.

What a store of yours must be is here: a `StoreSupplier` opens a `KeyValueStore`, or a `WindowStore`
or `SessionStore` that arranges windows or sessions by itself.
"""

from penstock.stores.contract import (
    ByteStore,
    Change,
    CheckpointStore,
    Entry,
    KeyValueStore,
    RangeDeletingStore,
    SessionStore,
    StateStore,
    StoreIdentity,
    StoreSupplier,
    TimeIndexedStore,
    VersionedStore,
    WindowStore,
    pages,
    split_stored_value,
    stored_value,
)

__all__ = [
    "ByteStore",
    "Change",
    "CheckpointStore",
    "Entry",
    "KeyValueStore",
    "RangeDeletingStore",
    "SessionStore",
    "StateStore",
    "StoreIdentity",
    "StoreSupplier",
    "TimeIndexedStore",
    "VersionedStore",
    "WindowStore",
    "pages",
    "split_stored_value",
    "stored_value",
]
