"""Who does what: membership, assignment, planning, commits. Pure: facts in, decisions out, no I/O."""
