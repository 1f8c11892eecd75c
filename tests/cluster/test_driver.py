"""What the driver does with workers that are played: they return, or die, as a script says."""

from collections import deque
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from lastseen.cluster import ModelChoice, asking, indexing
from lastseen.cluster.indexing import MOST_DEATHS, Plan, index_sources
from lastseen.cluster.machines import Machines, Room, WorkerDied
from lastseen.cluster.storage import Source
from lastseen.cluster.worker import BUSY, ELSEWHERE, FAILED, AskWorker, Begun, IndexWorker, Outcome
from lastseen.errors import LastSeenError
from lastseen.progress import ENCODED


class Played(Machines):
    """Workers whose calls return, or die, as a script says."""

    def __init__(self, script) -> None:
        self.script, self.started, self.stopped = script, 0, []
        self.ray = SimpleNamespace(available_resources=dict)

    def room(self, wanted, device=None) -> Room:
        return Room(wanted or 2, 1, 0)

    def actor(self, made_of, *arguments, room=None, restarts=0):
        if made_of not in (IndexWorker, AskWorker):
            return SimpleNamespace(told=SimpleNamespace(remote=dict), name="board")
        number = self.started = self.started + 1

        def call(method):
            return SimpleNamespace(remote=lambda *given: (number, method, given))

        return SimpleNamespace(begin=call("begin"), record=call("record"), close=call("close"), name=number)

    def get(self, call, timeout_s=None):
        if isinstance(call, dict):
            return call
        said = self.script(*call)
        if isinstance(said, Exception):
            raise said
        return said

    def finished(self, calls, timeout_s):
        return calls[:1]

    def stop(self, actor) -> None:
        self.stopped.append(actor.name)


def begun(number: int, fingerprint: str = "same") -> Begun:
    return Begun(shard=f"{number:03d}", fingerprint=fingerprint, engine="e", host=f"host{number}", pid=1)


def run_crew(script, tmp_path, names=("a", "b", "c")):
    outcomes, told = [], []
    sources = [Source(place=f"/{name}.mp4", size=10, mtime_ns=1) for name in names]
    played = Played(script)

    @contextmanager
    def connect():
        yield played

    plan = Plan(str(tmp_path), ModelChoice(), "full", workers=2)
    index_sources(connect, plan, sources, outcomes.append, told.append)
    assert sorted(one.source.place for one in outcomes) == sorted(one.place for one in sources)
    return {one.source.place: one for one in outcomes}, played


def added(number, given) -> Outcome:
    return Outcome(source=given[0], outcome="added", name=given[1], shard=f"{number:03d}", frames=5)


def test_a_video_that_kills_workers_again_and_again_is_given_up_and_the_others_are_done(tmp_path):
    deaths = []

    def script(number, method, given):
        if method == "begin":
            return begun(number)
        if method == "record" and given[0].place == "/b.mp4":
            deaths.append(number)
            return WorkerDied("out of memory")
        return added(number, given) if method == "record" else None

    found, played = run_crew(script, tmp_path)
    assert len(deaths) == MOST_DEATHS
    assert found["/b.mp4"].outcome == FAILED
    assert "workers died while they indexed it, so it is left out (out of memory)" in found["/b.mp4"].error
    assert found["/a.mp4"].outcome == found["/c.mp4"].outcome == "added"
    assert set(deaths) < set(played.stopped)


def test_workers_that_never_begin_or_make_other_features_end_the_command_in_one_line(tmp_path):
    def dying(number, method, given):
        return WorkerDied("no such library")

    with pytest.raises(LastSeenError, match="workers in a row died before they began: no such library"):
        run_crew(dying, tmp_path)

    def other(number, method, given):
        return begun(number, f"model of {number}") if method == "begin" else added(number, given)

    with pytest.raises(LastSeenError, match="host2 would make other features than the first worker"):
        run_crew(other, tmp_path)

    def refusing(number, method, given):
        return "weights are not there"

    with pytest.raises(LastSeenError, match="weights are not there"):
        run_crew(refusing, tmp_path)


def test_a_video_begun_in_the_shard_of_a_living_worker_waits_for_that_one(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "BUSY_S", 0.0)
    asked = []

    def script(number, method, given):
        if method != "record":
            return begun(number) if method == "begin" else None
        asked.append((number, given[0].place))
        if given[0].place == "/a.mp4" and number == 1:
            return Outcome(source=given[0], outcome=ELSEWHERE, name="a.mp4", shard="002")
        if given[0].place == "/b.mp4":
            return Outcome(source=given[0], outcome=BUSY, name="b.mp4")
        return added(number, given)

    found, _ = run_crew(script, tmp_path)
    assert found["/a.mp4"].shard == "002" and (2, "/a.mp4") in asked
    assert found["/b.mp4"].outcome == BUSY  # another command is at it, and stays at it
    assert found["/c.mp4"].outcome == "added"


def test_videos_of_the_same_name_get_different_ones(tmp_path):
    calls = deque()

    def script(number, method, given):
        calls.append(given)
        return begun(number) if method == "begin" else added(number, given) if method == "record" else None

    found, _ = run_crew(script, tmp_path, names=("x/walk", "y/walk", "z/run"))
    assert [one.name for _, one in sorted(found.items())] == ["walk.mp4", "walk.mp4 (2)", "run.mp4"]


@pytest.mark.parametrize("begins", [True, False])
def test_workers_are_told_to_remove_what_they_fetched_before_they_are_stopped(begins):
    called = []

    def script(number, method, given):
        called.append((number, method))
        if method == "begin":
            return "ready" if begins else TimeoutError()
        return WorkerDied("killed") if number == 1 else None

    played = Played(script)
    shards = SimpleNamespace(folder="there", indexes={"a": None, "b": None})
    if begins:
        with asking.crew(played, shards, ModelChoice(), None) as here:
            assert here.ready == "ready" and not played.stopped
    else:
        with pytest.raises(LastSeenError, match="not all workers began"):
            asking.Crew(played, shards, ModelChoice(), None)
    assert [who for who, method in called if method == "close"] == [1, 2] == played.stopped


def test_a_question_is_asked_again_if_a_worker_dies(monkeypatch):
    @contextmanager
    def no_crew(*_):
        yield SimpleNamespace(ready=SimpleNamespace(title="model"))

    tries = []

    def asked(here, question):
        tries.append(question)
        if len(tries) < failures:
            raise WorkerDied("killed")
        return {"it": []}

    monkeypatch.setattr(asking, "crew", no_crew)
    monkeypatch.setattr(asking, "_asked", asked)
    failures = 2
    assert asking.ask_shards(None, None, ModelChoice(), "question") == ({"it": []}, "model")
    failures = 100
    with pytest.raises(LastSeenError, match="workers died 3 times while they searched"):
        asking.ask_shards(None, None, ModelChoice(), "question")


def test_progress_is_of_all_videos_and_tells_the_time_left(monkeypatch):
    from lastseen.cluster import overall

    clock, told = SimpleNamespace(now=0.0), []
    monkeypatch.setattr(overall.time, "monotonic", lambda: clock.now)
    sizes = {"1": 100, "2": 50, "3": 50}
    one, two, three = (Source(place=name, size=size, mtime_ns=1) for name, size in sizes.items())
    progress = overall.Overall(told.append, [one, two, three])
    progress.update({0: one, 1: two}, {})
    assert told == []  # nobody knows how long they are
    progress.update({0: one, 1: two}, {0: ("1", 0, 100), 1: ("2", 30, 50)})  # 30 of before
    assert (told[-1].done, told[-1].total, told[-1].left_s) == (30, 200, None)
    clock.now = 2.0
    progress.update({0: one, 1: two}, {0: ("1", 10, 100), 1: ("2", 40, 50)})
    assert (told[-1].done, told[-1].total, told[-1].left_s) == (50, 200, 15.0)  # 20 frames in 2 seconds
    progress.stopped(0)
    progress.done(two, 50)
    progress.update({1: three}, {0: ("1", 10, 100), 1: ("2", 50, 50)})
    assert (told[-1].done, told[-1].total) == (50, 200)
    assert told[-1].phase == "reading" and ENCODED


@pytest.mark.parametrize(
    ("nodes", "device", "wanted", "room"),
    [
        ([{"CPU": 2.0}], None, None, Room(2, 1, 0)),
        ([{"CPU": 16.0}], None, 4, Room(4, 4, 0)),
        ([{"CPU": 2.0}], None, 4, Room(4, 0.5, 0)),
        ([{"CPU": 2.0}] * 5, None, 3, Room(3, 2, 0)),  # not three cores each: no machine has them
        ([{"CPU": 16.0, "GPU": 2.0}, {"CPU": 4.0}], None, None, Room(2, 1, 1)),
        ([{"CPU": 16.0, "GPU": 2.0}], "cpu", 2, Room(2, 8, 0)),
    ],
)
def test_workers_take_gpus_or_else_a_share_of_the_cores(nodes, device, wanted, room):
    total = {name: sum(node.get(name, 0) for node in nodes) for name in ("CPU", "GPU")}
    ray = SimpleNamespace(
        cluster_resources=lambda: {**total, "memory": 2.0**36},
        nodes=lambda: [{"Alive": True, "Resources": node} for node in nodes],
    )
    assert Machines(ray).room(wanted, device) == room
    assert room.threads == (None if room.gpus else max(1, int(room.cpus)))
    if total["GPU"] and device is None:
        with pytest.raises(LastSeenError, match="the cluster has 2 GPUs"):
            Machines(ray).room(3)
