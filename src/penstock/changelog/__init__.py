"""Internal topics, commit records, and the way from a changelog back to a store."""
