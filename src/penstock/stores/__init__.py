"""Store contracts and kinds: keyed bytes that know how much of their changelog they hold."""
