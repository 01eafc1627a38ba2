"""The coordination and the commit protocol in one process, with simulated surroundings."""
