"""Programs to learn from, each with test data; `penstock example list` names them.

Each program's file stands for itself: `penstock run` takes it, and it can be copied.
"""
