"""Videos spread over the processes of a real Ray cluster: the index and the answers of one machine, also when
workers or the driver are killed."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lastseen.answer import Answer
from lastseen.cluster import Cluster, ModelChoice, asking
from lastseen.cluster.asking import crew
from lastseen.cluster.here import ask_here
from lastseen.cluster.machines import Machines, machines
from lastseen.cluster.question import Question
from lastseen.cluster.shards import Shards, places
from lastseen.index import Index
from lastseen.index.record import add_file
from lastseen.localizer import Localizer
from lastseen.query import Query
from lastseen.video import Video
from lastseen.weights import save_model

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from index_kill import contents, make_video, tiny_localizer  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(sys.platform != "linux", reason="/proc"),
]
ENGINE = "torch-fp32"
SECONDS = {"a.mp4": 20, "b.mp4": 16, "below/c.mp4": 8, "below/d.mp4": 4.9}


class Slow(ModelChoice):
    """So that a worker can be killed while it encodes, however fast the machine is."""

    def load(self) -> Localizer:
        localizer = super().load()
        encode = localizer.engine.encode_pictures

        def slowly(pictures, batch):
            time.sleep(0.08)
            return encode(pictures, batch)

        localizer.engine.encode_pictures = slowly
        return localizer


@pytest.fixture(scope="module")
def ray_here():
    """A cluster of several processes on this machine; commands and tests join it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
            patch.delenv(name, raising=False)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray keeps one in the user's folder
        with machines("auto", cpus=2) as here:
            here.ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers lack the tests
            yield here.ray


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("archive")
    (root / "below").mkdir()
    for number, (name, seconds) in enumerate(SECONDS.items()):
        make_video(root / name, seconds, number)
        os.utime(root / name, (1_000_000_000 + 3600 * number,) * 2)
    return root


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    save_model(tiny_localizer("maps", query_scales=(1.0, 0.5)).model, folder)
    return folder


@pytest.fixture(scope="module")
def model(weights) -> ModelChoice:
    return ModelChoice(weights=str(weights), engine=ENGINE, threshold=0.02)


@pytest.fixture(scope="module")
def one_machine(tmp_path_factory, archive, model):
    """The same videos in one index, made by one process."""
    localizer = model.load()
    with Index(tmp_path_factory.mktemp("one") / "index", localizer=localizer) as index:
        for path in sorted(archive.rglob("*.mp4")):
            add_file(index, localizer, path)
        yield index


def workers_of(ray) -> dict[int, str]:
    """The processes that index, with what they are doing."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            title = (place / "cmdline").read_bytes().decode().rstrip("\0 ")
            above = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            raylet = (Path(f"/proc/{above}/cmdline")).read_bytes()
        except OSError:
            continue
        if (
            title.startswith("ray::IndexWorker")
            and str(ray._private.worker._global_node.get_session_dir_path()).encode() in raylet
        ):
            found[int(place.name)] = title
    return found


def shard_contents(folder: Path) -> dict[str, bytes]:
    found = {}
    for place in places(folder).values():
        of_shard = contents(place)
        assert not of_shard.keys() & found.keys(), "a video is in two shards"
        found |= of_shard
        with Index(place) as shard:
            assert shard.problems() == [] and all(shard.verify(video) == [] for video in shard.videos())
            assert all(video.complete for video in shard.videos())
    return found


@pytest.fixture(scope="module")
def sharded(tmp_path_factory, ray_here, archive, model, one_machine):
    """Made by two workers, each of which is killed while it encodes."""
    folder = tmp_path_factory.mktemp("sharded") / "index"
    killed, told, outcomes = [], [], []

    def kill_two(progress):
        told.append(progress)
        busy = [pid for pid, title in workers_of(ray_here).items() if title == "ray::IndexWorker.record"]
        if progress.done > 8 and len(killed) < 2 and busy:
            os.kill(busy[0], signal.SIGKILL)
            killed.append(busy[0])

    slow = Slow(weights=model.weights, engine=ENGINE)
    Cluster(folder, workers=2, model=slow).add(archive, report=outcomes.append, progress=kill_two)
    cluster = Cluster(folder, workers=2, model=model)
    return cluster, outcomes, told, killed


def test_two_killed_workers_lose_nothing_and_nothing_is_done_twice(sharded, one_machine):
    cluster, outcomes, told, killed = sharded
    assert len(killed) == 2
    assert sorted(one.name for one in outcomes) == ["a.mp4", "b.mp4", "c.mp4", "d.mp4"]
    # "known": its worker was killed between the commit and its report.
    assert {one.outcome for one in outcomes} <= {"added", "known"}
    made = shard_contents(Path(cluster.folder))
    assert made == contents(one_machine.folder)
    assert told[-1].phase == "reading" and told[-1].left_s is not None
    frames = sum(video.frames for video in one_machine.videos())
    assert all(one.done <= one.total for one in told) and max(one.done for one in told) <= frames
    assert [video.name for video in cluster.videos()] == [video.name for video in one_machine.videos()]


def test_what_is_there_is_not_done_again(sharded, archive, monkeypatch):
    cluster, *_ = sharded
    monkeypatch.setattr("lastseen.cluster.indexing._Crew", None)  # no worker is needed to know
    assert [one.outcome for one in cluster.add(archive)] == ["known"] * 4


def test_the_merged_answer_is_that_of_one_index(sharded, archive, one_machine, model, ray_here):
    """To the bit, whether shards are asked by their workers at once, or here one after another."""
    cluster, *_ = sharded
    queries = {"it": picture_of(archive), "other": Query.from_video(Video(archive / "b.mp4"), 9.0)}
    there = Machines(ray_here)
    with Shards(cluster.folder) as shards, crew(there, shards, model, None) as workers:
        assert len(shards.indexes) > 1
        for options in (
            {"every": True, "candidates": 6},
            {"every": True, "exhaustive": True},
            {"before": 1_000_000_000 + 3605.0},
        ):
            expected = one_machine.ask_many(queries, **options)
            question = Question(queries=queries, held=shards.held(), **options)
            at_once = asking._asked(workers, question)
            in_turn, title = ask_here(shards, lambda: one_machine.localizer, question)
            assert title == workers.ready.title == one_machine.localizer.model.title
            for found in (at_once, in_turn):
                assert found.keys() == expected.keys()
                for name, answers in expected.items():
                    assert answers and len(found[name]) == len(answers)
                    for mine, theirs in zip(found[name], answers):
                        assert_equal(mine, theirs, queries[name])


def assert_equal(mine: Answer, theirs: Answer, query: Query) -> None:
    assert mine.video.name == theirs.video.name
    assert (mine.sightings, mine.best_guess) == (theirs.sightings, theirs.best_guess)
    assert (mine.steps, mine.damage, mine.searched_to_s) == (
        theirs.steps,
        theirs.damage,
        theirs.searched_to_s,
    )
    for field in ("scores", "boxes_px", "smooth", "searched"):
        assert np.array_equal(getattr(mine.curve, field), getattr(theirs.curve, field))
    assert mine.query is query


def test_each_shard_answers_alone(sharded, archive, model):
    cluster, *_ = sharded
    for place in places(Path(cluster.folder)).values():
        with Index(place, create=False, localizer=model.load()) as shard:
            assert shard.ask(picture_of(archive)) is not None


def picture_of(archive: Path) -> Query:
    return Query.from_video(Video(archive / "a.mp4"), 1.0, box=(20, 20, 60, 60))


def test_a_killed_command_goes_on_where_it_was(ray_here, archive, weights, one_machine, tmp_path):
    folder, address = tmp_path / "index", ray_here.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "lastseen", "index", str(archive), "--index", str(folder)]
    command += [
        "--ray",
        address,
        "--workers",
        "2",
        "--weights",
        str(weights),
        "--engine",
        ENGINE,
        "--json",
        "-q",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: complete(folder) or first.poll() is not None)
    assert first.poll() is None
    first.kill()
    first.wait()
    wait_until(lambda: not workers_of(ray_here))  # Ray ends the workers of a driver that is gone
    before = complete(folder)
    assert before
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    videos = {video["name"]: video for video in json.loads(done.stdout)["videos"]}
    assert len(videos) == 4
    assert {name for name, video in videos.items() if video["outcome"] == "known"} >= before.keys()
    after = complete(folder)
    assert {name: after[name] for name in before} == before  # not written again
    assert shard_contents(folder) == contents(one_machine.folder)


def wait_until(there) -> None:
    for _ in range(2000):
        if there():
            return
        time.sleep(0.05)
    raise AssertionError("it took too long")


def complete(folder: Path) -> dict[str, list[int]]:
    """Finished videos, and when their files were written."""
    found = {}
    if not places(folder):
        return found
    with Shards(folder) as shards:
        for one in shards.held():
            if one.video.complete:
                files = sorted(shards.indexes[one.shard].place(one.video).iterdir())
                found[one.video.name] = [file.stat().st_mtime_ns for file in files]
    return found


def test_the_cluster_of_this_machine_is_private(ray_here):
    """Nothing listens beyond the loopback interface, and nothing is reported to Ray's makers."""
    from ray._common.usage import usage_lib

    assert not usage_lib.usage_stats_enabled()
    session = str(ray_here._private.worker._global_node.get_session_dir_path())
    inodes = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            mine = session.encode() in (place / "cmdline").read_bytes() or place.name == str(os.getpid())
            links = [str(link.readlink()) for link in (place / "fd").iterdir()] if mine else []
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    listening = []
    for table in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
        listening += [row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes]
    assert listening
    assert set(listening) <= {"0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000"}
