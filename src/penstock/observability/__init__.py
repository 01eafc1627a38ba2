"""Metrics, events for listeners, logging, and the named points at which tests crash a process."""
