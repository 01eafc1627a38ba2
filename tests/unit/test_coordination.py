"""The pure decisions: who owns what, where a task stands, what is read next."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordination.commits import judge, settle
from penstock.coordination.ids import Epoch, Range, TaskId
from penstock.coordination.layout import check_copartitioned, commits_partitions, lay_out
from penstock.coordination.planning import PlanLimits, TaskView, plan
from penstock.coordination.tasks import TaskBook
from penstock.errors import PartitionCountError
from penstock.topology import StreamsBuilder
from penstock.topology.patterns import with_topics

LIMITS = PlanLimits(records_max=1000, bytes_max=100_000, jobs_max=3)


class TestJudging:
    @given(st.integers(1, 5), st.integers(0, 5), st.integers(0, 9), st.integers(0, 9))
    def test_each_number_applies_once_from_the_right_place(
        self, n: int, last: int, start: int, position: int
    ) -> None:
        verdict = judge(n=n, start={"a": {0: start}}, last=last, position={"a": {0: position}})
        if n <= last:
            assert verdict == "done"
        elif n == last + 1 and start == position:
            assert verdict == "apply"
        else:
            assert verdict == "refuse"


class TestStanding:
    def settle(self, recorded: int | None, group: int | None, **options: bool) -> tuple[int, bool]:
        standing = settle(
            recorded=None if recorded is None else {"a": {0: recorded}},
            previous={"a": {0: 5}},
            group={} if group is None else {"a": {0: group}},
            resets={"a": {0: 2}},
            first_taking=options.get("first", True),
            exactly_once=options.get("exactly_once", True),
        )
        return standing.position["a"][0], standing.moved_by_group

    def test_a_new_task_starts_where_the_reset_says(self) -> None:
        assert self.settle(None, None) == (2, False)

    def test_a_group_without_a_record_is_a_takeover_from_java(self) -> None:
        assert self.settle(None, 7) == (7, False)

    def test_the_record_counts_when_both_agree_or_the_group_is_gone(self) -> None:
        assert self.settle(9, 9) == (9, False)
        assert self.settle(9, None) == (9, False)

    def test_a_group_that_someone_moved_is_followed_at_the_first_taking_only(self) -> None:
        assert self.settle(9, 4) == (4, True)
        assert self.settle(9, 4, first=False) == (9, False)

    def test_at_least_once_takes_the_previous_position_for_a_crash(self) -> None:
        assert self.settle(9, 5, exactly_once=False) == (9, False)
        assert self.settle(9, 4, exactly_once=False) == (4, True)


class TestPlanning:
    def view(self, partition: int, start: int, **options: float) -> TaskView:
        return TaskView(
            task=TaskId(0, partition),
            position={"a": {partition: start}},
            due=options.get("due", 0.0),
            bytes_per_record=options.get("size", 1.0),
            alone=bool(options.get("alone", 0)),
        )

    def test_tasks_with_little_to_do_share_a_job(self) -> None:
        views = [self.view(0, 0), self.view(1, 5)]
        [batch] = plan(views, {("a", 0): 3, ("a", 1): 9}, now=1, running_jobs=0, limits=LIMITS)
        assert [s.ranges for s in batch.slices] == [
            (Range("a", 0, 0, 3),),
            (Range("a", 1, 5, 9),),
        ]

    def test_a_task_far_behind_gets_its_own_job_and_who_waits_longest_goes_first(self) -> None:
        views = [self.view(0, 0, due=0.5), self.view(1, 0, due=0.1)]
        small, large = plan(
            views, {("a", 0): 90_000, ("a", 1): 3}, now=1, running_jobs=0, limits=LIMITS
        )
        assert small.records == 3
        assert large.records == 1000

    def test_bytes_bound_a_slice_too_but_never_to_nothing(self) -> None:
        ends = {("a", 0): 5000}
        [batch] = plan([self.view(0, 0, size=1000.0)], ends, now=1, running_jobs=0, limits=LIMITS)
        assert batch.records == 100
        [batch] = plan([self.view(0, 0, size=1e9)], ends, now=1, running_jobs=0, limits=LIMITS)
        assert batch.records == 1

    def test_nothing_is_planned_without_data_before_its_time_or_over_the_limit(self) -> None:
        ends = {("a", 0): 5}
        assert plan([self.view(0, 5)], ends, now=1, running_jobs=0, limits=LIMITS) == []
        assert plan([self.view(0, 0, due=2.0)], ends, now=1, running_jobs=0, limits=LIMITS) == []
        assert plan([self.view(0, 0)], ends, now=1, running_jobs=3, limits=LIMITS) == []

    def test_inputs_that_have_more_are_told(self) -> None:
        view = TaskView(
            task=TaskId(0, 0),
            position={"a": {0: 10}, "b": {0: 0}, "c": {0: 7}},
            due=0.0,
            bytes_per_record=1.0,
            alone=False,
        )
        ends = {("a", 0): 5000, ("b", 0): 500, ("c", 0): 7}
        [batch] = plan([view], ends, now=1, running_jobs=0, limits=LIMITS)
        [piece] = batch.slices
        assert piece.ranges == (Range("a", 0, 10, 510), Range("b", 0, 0, 500))
        assert piece.more == {("a", 0)}

    def test_a_task_whose_job_failed_is_alone(self) -> None:
        views = [self.view(0, 0, alone=1), self.view(1, 0)]
        batches = plan(views, {("a", 0): 2, ("a", 1): 2}, now=1, running_jobs=0, limits=LIMITS)
        assert [len(batch.slices) for batch in batches] == [1, 1]


class TestTaskBook:
    def test_a_task_that_moved_while_its_job_ran_is_known_to_have(self) -> None:
        task = TaskId(0, 0)
        book = TaskBook([(task, "counts-0")], generation=1)
        book.serving(task, book.own(task, "i1").epoch, {"a": {0: 3}}, 1, {})
        book.start(task)
        assert not book.has_moved(task)
        book.lose_owner("i1")
        # Nobody serves it: what was committed is known to the next owner.
        assert book.has_moved(task)
        book.own(task, "i2")
        assert book.has_moved(task)

    def test_of_one_who_did_not_answer_no_task_is_planned_before_it_was_asked(self) -> None:
        tasks = first, second, third = [TaskId(0, partition) for partition in range(3)]
        book = TaskBook([(task, f"counts-{task.partition}") for task in tasks], generation=1)
        for task, owner in zip(tasks, ("silent", "silent", "other"), strict=True):
            book.serving(task, book.own(task, owner).epoch, {"a": {task.partition: 3}}, 1, {})
            book.start(task)
        for task in (second, third):
            book.finish(task, {}, 2, due=0.0, bytes_per_record=0.0, metadata={})
        book.doubt(first, due=0.0)
        book.doubt_owners_of([first], due=5.0)
        assert [view.task for view in book.views()] == [third]
        assert (book.entries[second].state, book.entries[second].due) == ("taking", 5.0)

    def test_whoever_took_the_task_of_one_who_did_not_answer_is_not_doubted(self) -> None:
        tasks = first, second = TaskId(0, 0), TaskId(0, 1)
        book = TaskBook([(task, f"counts-{task.partition}") for task in tasks], generation=1)
        for task, owner in zip(tasks, ("silent", "other"), strict=True):
            book.serving(task, book.own(task, owner).epoch, {"a": {task.partition: 3}}, 1, {})
        book.start(first)
        book.lose_owner("silent")
        book.own(first, "other")
        book.doubt_owners_of([first], due=5.0)
        assert [view.task for view in book.views()] == [second]

    def test_a_task_is_ours_once_it_has_committed_under_this_driver(self) -> None:
        task = TaskId(0, 0)
        book = TaskBook([(task, "counts-0")], generation=2)
        entry = book.own(task, "i1")
        book.serving(task, entry.epoch, {"a": {0: 3}}, 4, {})
        assert not entry.is_ours
        book.serving(task, book.own(task, "i2").epoch, {"a": {0: 3}}, 4, {})
        assert not entry.is_ours
        book.start(task)
        book.finish(task, {"a": {0: 5}}, 5, due=0.0, bytes_per_record=0.0, metadata={})
        assert entry.is_ours

    def test_from_unowned_to_committed(self) -> None:
        task = TaskId(0, 1)
        book = TaskBook([(task, "counts-1")], generation=3)
        entry = book.own(task, "i1")
        assert entry.epoch == Epoch(3, 1)
        book.serving(task, Epoch(3, 0), {}, 9, {})  # An older epoch's news is ignored.
        assert entry.state == "taking"
        book.serving(task, entry.epoch, {"a": {1: 7}}, 4, {"t": "2"})
        assert entry.metadata == {"t": "2"}
        assert [view.position for view in book.views()] == [{"a": {1: 7}}]
        book.start(task)
        assert book.views() == []
        book.finish(task, {"a": {1: 9}}, 5, due=1.0, bytes_per_record=10.0, metadata={"t": "3"})
        assert (entry.state, entry.n, entry.position) == ("ready", 5, {"a": {1: 9}})
        assert entry.metadata == {"t": "3"}

    def test_timers_are_those_of_sub_topologies_that_have_some(self) -> None:
        tasks = [TaskId(0, 0), TaskId(1, 0)]
        book = TaskBook([(task, f"sub-{task}") for task in tasks], generation=1, ticking=[1])
        for task in tasks:
            book.serving(task, book.own(task, "i1").epoch, {}, 0, {})
        ticking = [view.task for view in book.views(now_ms=100) if view.tick]
        assert ticking == [TaskId(1, 0)]  # It has never run: its `init` has.
        book.start(tasks[1])
        said = {"wall-clock-due": "150"}
        book.finish(tasks[1], {}, 1, due=0.0, bytes_per_record=0.0, metadata=said)
        due = {now: any(view.tick for view in book.views(now_ms=now)) for now in (149, 150)}
        assert due == {149: False, 150: True}

    def test_a_new_driver_lets_every_timer_be_scheduled_once(self) -> None:
        """The last program may have had none: what it left says nothing of this one's."""
        task = TaskId(0, 0)
        book = TaskBook([(task, "sub")], generation=1, ticking=[0])
        said = {"wall-clock-due": "4611686018427387904"}
        book.serving(task, book.own(task, "i1").epoch, {}, 7, said)
        assert [view.tick for view in book.views(now_ms=100)] == [True]
        book.start(task)
        book.finish(task, {}, 7, due=0.0, bytes_per_record=0.0, metadata=said)
        assert [view.tick for view in book.views(now_ms=100)] == [False]

    def test_a_lost_owner_while_a_job_runs_means_asking_the_next_one(self) -> None:
        task = TaskId(0, 0)
        book = TaskBook([(task, "counts-0")], generation=1)
        entry = book.own(task, "i1")
        book.serving(task, entry.epoch, {"a": {0: 0}}, 0, {})
        book.start(task)
        assert book.lose_owner("i1") == [task]
        assert entry.state == "running"
        book.own(task, "i2")
        assert entry.state == "running"
        book.doubt(task, due=0.0, alone=True)
        assert (entry.state, entry.epoch, entry.alone) == ("taking", Epoch(1, 2), True)


class TestLayout:
    def test_a_repartition_topic_is_as_wide_as_what_feeds_it(self) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=str, value=str)
        stream.group_by(lambda key, value: value, key=str).count("counts").to_stream().to("out")
        layout = lay_out(builder.build(), "app", {"in": 3, "out": 1})
        assert layout.repartitions == {"app-counts-repartition": 3}
        assert layout.changelogs == {"app-counts-changelog": 3}
        assert [str(task.task) for task in layout.tasks[2:5]] == ["0_2", "1_0", "1_1"]
        assert layout.tasks[4].inputs == (("app-counts-repartition", 1),)
        assert layout.tasks[4].name == "counts-1"

    def test_a_task_reads_all_topics_that_have_its_partition(self) -> None:
        builder = StreamsBuilder()
        builder.stream(["a", "b"], key=str, value=str).group_by_key().count("counts")
        layout = lay_out(builder.build(), "app", {"a": 2, "b": 1})
        assert [task.inputs for task in layout.tasks] == [(("a", 0), ("b", 0)), (("a", 1),)]

    def test_a_source_says_where_its_topics_are_read_from(self) -> None:
        builder = StreamsBuilder()
        stream = builder.stream(["a", "b"], key=str, value=str, auto_offset_reset="latest")
        stream.group_by(lambda key, value: value, key=str).count("counts")
        pattern = re.compile("x-.*")
        builder.stream(pattern, key=str, value=str, auto_offset_reset="earliest").to("out")
        builder.table("t", "rows", key=str, value=str, auto_offset_reset="earliest")
        builder.stream("c", key=str, value=str).to("out")
        topology = with_topics(builder.build(), ["x-1"])
        layout = lay_out(topology, "app", dict.fromkeys(["a", "b", "c", "t", "x-1", "out"], 1))
        assert [layout.reset(each, "latest") for each in "abct"] == ["latest"] * 3 + ["earliest"]
        assert [layout.reset(each, "earliest") for each in "abc"] == ["latest"] * 2 + ["earliest"]
        assert layout.reset("x-1", "latest") == "earliest"
        # What we wrote ourselves is never skipped.
        assert layout.reset("app-counts-repartition", "latest") == "earliest"

    def test_topics_that_must_be_copartitioned_and_are_not(self) -> None:
        check_copartitioned([("a", "b"), ("c",)], {"a": 2, "b": 2, "c": 3})
        with pytest.raises(PartitionCountError, match="'a' has 2 partitions and 'b' has 3"):
            check_copartitioned([("a", "b")], {"a": 2, "b": 3})
        builder = StreamsBuilder()
        stream = builder.stream("a", key=str, value=str)
        table = builder.table("b", "names", key=str, value=str)
        stream.join(table, lambda left, right: left, value=str)
        topology = builder.build()
        with pytest.raises(PartitionCountError, match="'a' has 2 partitions and 'b' has 1"):
            lay_out(topology, "app", {"a": 2, "b": 1})
        assert len(lay_out(topology, "app", {"a": 2, "b": 2}).tasks) == 2

    def test_a_repartition_topic_is_as_wide_as_what_it_is_joined_with(self) -> None:
        builder = StreamsBuilder()
        table = builder.table("b", "names", key=str, value=str)
        stream = builder.stream("a", key=str, value=str).select_key(lambda k, v: v, key=str)
        stream.join(table, lambda left, right: left, value=str, name="named").to("out")
        layout = lay_out(builder.build(), "app", {"a": 4, "b": 2, "out": 1})
        assert layout.repartitions == {"app-named-repartition": 2}

    def test_among_our_own_topics_the_widest_counts(self) -> None:
        builder = StreamsBuilder()
        tables = []
        for name in ("a", "b"):
            stream = builder.stream(name, key=str, value=str)
            grouped = stream.group_by(lambda key, value: value, key=str)
            tables.append(grouped.count(f"{name}-counts"))
        tables[0].join(tables[1], lambda left, right: left + right, value=int)
        layout = lay_out(builder.build(), "app", {"a": 2, "b": 5})
        assert set(layout.repartitions.values()) == {5}
        assert layout.changelogs["app-a-counts-changelog"] == 5

    def test_the_user_has_the_say_on_a_repartition_topic(self) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("a", key=str, value=str).repartition(partitions=6, name="wide")
        stream.group_by_key().count("counts")
        layout = lay_out(builder.build(), "app", {"a": 2})
        assert layout.repartitions == {"app-wide-repartition": 6}
        assert layout.changelogs == {"app-counts-changelog": 6}
        other = builder.table("b", "names", key=str, value=str)
        stream.join(other, lambda left, right: left, value=str)
        with pytest.raises(PartitionCountError, match="'app-wide-repartition' has 6 partitions"):
            lay_out(builder.build(), "app", {"a": 2, "b": 2})

    def test_topics_that_feed_each_other_get_a_width(self) -> None:
        """A join by foreign keys sends questions to the other table's tasks, and answers back."""
        builder = StreamsBuilder()
        orders = builder.table("orders", "orders", key=str, value=str)
        customers = builder.table("customers", "customers", key=str, value=str)
        orders.join(customers, lambda o, c: o, foreign_key=lambda o: o, value=str, name="fk")
        layout = lay_out(builder.build(), "app", {"orders": 3, "customers": 2})
        assert layout.repartitions == {
            "app-fk-subscription-registration-topic": 2,
            "app-fk-subscription-response-topic": 3,
        }

    def test_commit_partitions_are_for_good(self) -> None:
        first = commits_partitions({}, ["a-0", "b-0"])
        assert first == {"a-0": 1, "b-0": 2}
        assert commits_partitions(first, ["c-0", "b-0"]) == {"a-0": 1, "b-0": 2, "c-0": 3}
