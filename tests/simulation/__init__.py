"""Decisions at sizes and in sequences that no machine at hand could hold."""
