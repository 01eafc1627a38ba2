"""The process that holds the stores, and how workers and the driver speak to it."""
