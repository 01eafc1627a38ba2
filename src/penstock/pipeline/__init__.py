"""Spark: sessions, jobs, what runs inside a Spark task. The only folder that imports pyspark."""
