"""Which part of Penstock a test file is about, and how much of the run's time each part takes.

A run of `make test` ends with the table that `report` makes. It only tells: no test fails because a
machine was slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

BUDGETS: dict[str, int | None] = {
    "path": 4,
    "dsl": 3,
    "stores": 3,
    "members": 3,
    "queries": 2,
    "console": None,
}
"""The areas, and the minutes that each may take of the whole, where it has a limit of its own."""

TOTAL_MINUTES = 15

_FOLDERS = {
    "tests/crash": "path",
    "tests/conformance": "dsl",
    "tests/contract": "stores",
    "tests/simulation": "members",
    "tests/browser": "console",
    "src/penstock": "path",
    "src/penstock/changelog": "stores",
    "src/penstock/cli": "console",
    "src/penstock/console": "console",
    "src/penstock/coordination": "members",
    "src/penstock/examples": "dsl",
    "src/penstock/instance": "members",
    "src/penstock/local": "console",
    "src/penstock/observability": "queries",
    "src/penstock/processors": "dsl",
    "src/penstock/queries": "queries",
    "src/penstock/serdes": "dsl",
    "src/penstock/stores": "stores",
    "src/penstock/testing": "dsl",
    "src/penstock/topology": "dsl",
    "src/penstock_command": "console",
    "src/pyspark_penstock": "queries",
}
"""Folders of which every file is about the same; the longest one that fits counts."""

# Files of tests/unit and tests/integration, without `test_`. Where both folders have one of a name,
# both are about the same.
_FILES = {
    "path": """
        bad_days client_properties commit_record config count crash_points decoders driver_lease
        driver_writer full_disk import_order inputs interop jobs masters offset_metadata planning
        session spark_on_its_way task tidy transactions worker
    """,
    "dsl": """
        async_functions cache_sizes changed_in_place changed_programs collect conformance driver
        dropped_records
        engines_agree error_handlers examples
        expressions functions global_programs global_rows global_tables keys_to_read known_tables
        mistakes odd_functions operators partitioners patterns printing processor_stores processors
        processors_depth_first processors_oracle punctuators record_cache refusals rejected
        registry registry_steps rejections serdes spelt_keys stream_joins_agree
        serdes_kafka_bytes serdes_registry several_inputs stable_names table_options table_times
        taking_over ticks topology topology_change topology_cycles topology_describe topology_diff
        topology_knots topology_messages topology_misread topology_values unlimited_windows
        values_put_back versioned_tables waiting_errors windowed_partitions windows with_key
    """,
    "stores": """
        bootstrap checkpoint_file cli_state custom_stores directory early_copies external_stores
        history hostile_names internal_topics lru memory_stores postgres postgres_task reading_again
        recovery restore restore_listeners restore_progress restoring rocksdb_engine rocksdb_store
        seen_settings snapshots topic_admin topics truncation versioned_stores windowed_stores
    """,
    "members": """
        assignment beginnings brokers_fail client coming_to_rest coordination coordinator
        cut_off_driver decisions external_instances following gathering holder instance_process
        lent_consumers members newer_drivers owners pace peers placements rebalances server standbys
        states static_id static_ids tls
    """,
    "queries": """
        access answers batch_reads health hidden hidden_in_text instance_http instance_metrics
        json_logs kafka_options kafka_security metrics metrics_catalogue monitoring
        pages_of_partitions point_reads queries queries_access queries_openapi queries_server
        queries_service query_answers query_asking query_copies query_pages question_socket
        quick_requests secrets slice_metrics spark_tables stale_queries store_tables strangers
        told_stores
    """,
    "console": """
        areas batch_steps bench_failover bench_input bench_keep bench_measure bench_restores
        bench_results bench_rows broker class_archive cli_demo cli_errors cli_gently cli_help
        cli_progress cli_query cli_records cli_run cli_running cli_tables cli_topics cli_topology
        cli_usage
        console console_routes docs_changelogs docs_commands docs_custom_stores docs_deployed
        docs_deploying docs_external_stores docs_functions docs_http docs_java docs_kafka_streams
        docs_measured docs_on_kafka docs_queries docs_runbook docs_secured docs_serdes docs_shell
        docs_site docs_snippets jars kafka_view reset_by_name resets topology_diagram tutorial
    """,
}
_OF_FILE = {f"test_{name}": area for area, names in _FILES.items() for name in names.split()}

_LONG_FIRST = ("tests/crash", "tests/integration", "tests/contract", "tests/simulation")


def area_of(file: str) -> str | None:
    """The area of a test file, by its path from the project's folder.

    >>> area_of("tests/integration/test_bootstrap.py")
    'stores'
    """
    path = PurePosixPath(file)
    if path.parts[:2] in (("tests", "unit"), ("tests", "integration")):
        return _OF_FILE.get(path.stem)
    if path.parent == PurePosixPath("tests"):
        return "console"  # What tests share is about none of them.
    for folder in path.parents:
        if str(folder) in _FOLDERS:
            return _FOLDERS[str(folder)]
    return None


def known_files() -> set[str]:
    """The names of files that the lists here have, without folders."""
    return set(_OF_FILE)


def place_in_run(file: str) -> int:
    """When a file has its turn: files that take minutes first, so that no worker ends with one.

    >>> sorted(["tests/unit/test_lru.py", "tests/crash/test_kills.py"], key=place_in_run)
    ['tests/crash/test_kills.py', 'tests/unit/test_lru.py']
    """
    folder = str(PurePosixPath(file).parent)
    return _LONG_FIRST.index(folder) if folder in _LONG_FIRST else len(_LONG_FIRST)


def seconds_by_area(durations: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The sums of files' seconds; what belongs to nothing is in `other`."""
    sums: dict[str, float] = defaultdict(float)
    for file, seconds in durations:
        sums[area_of(file) or "other"] += seconds
    return dict(sums)


def report(seconds: Mapping[str, float], *, workers: int) -> list[str]:
    """A line for each area: its share of the run, when so many workers shared the work.

    >>> report({"path": 480.0, "stores": 420.0}, workers=2)
    ['path      4:00 of 4:00', 'stores    3:30 of 3:00, too much', 'all       7:30 of 15:00']
    """
    lines = [
        _line(area, seconds[area] / workers, BUDGETS.get(area))
        for area in [*BUDGETS, "other"]
        if area in seconds
    ]
    return [*lines, _line("all", sum(seconds.values()) / workers, TOTAL_MINUTES)]


def _line(name: str, seconds: float, minutes: int | None) -> str:
    text = f"{name:<8}{_clock(seconds):>6}"
    if minutes is None:
        return text
    more = ", too much" if round(seconds) > minutes * 60 else ""
    return f"{text} of {minutes}:00{more}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
