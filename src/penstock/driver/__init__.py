"""The driver: one process that plans, coordinates and has Spark do the work."""
