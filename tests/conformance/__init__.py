"""The same topologies and records through Kafka Streams and through Penstock, from seeds."""
