"""Who does what: membership, assignment, planning, commits. Facts in, decisions out, no I/O."""
