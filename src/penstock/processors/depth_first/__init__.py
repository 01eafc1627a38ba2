"""The operators one record at a time, depth first, as Kafka Streams runs them.

Every operator is here. Sub-topologies that `processors.slice_run` can compute a column at a time
are faster there, with the same results.
"""

from penstock.processors.depth_first.run import RecordRun
from penstock.processors.depth_first.shaped import shape_class
from penstock.processors.depth_first.windows import closed_keys

__all__ = ["RecordRun", "closed_keys", "shape_class"]
