"""Counts heart beats per patient, and passes on every patient's total.

Run it with `penstock run examples/pulse_monitor.py`, or `python examples/pulse_monitor.py`; topics
`pulse-events` and `pulse-totals` must exist.
"""

import penstock as ps

app = ps.Application("pulse-monitor")
(
    app.stream("pulse-events", key=str, value=int)
    .filter(lambda patient, bpm: bpm > 0)
    .group_by_key()
    .count("pulse-counts")
    .to_stream()
    .to("pulse-totals")
)

if __name__ == "__main__":
    app.run()
