"""What a machine needs besides Python: Java, the JVM parts, and an Apache Kafka for development."""
