"""What a worker does with a video, without Ray; and mistakes, each one line."""

import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from lastseen.cluster import Cluster, ModelChoice
from lastseen.cluster.machines import machines
from lastseen.cluster.shards import Shards, places
from lastseen.cluster.storage import sources_of
from lastseen.cluster.worker import (
    BUSY,
    ELSEWHERE,
    FAILED,
    KNOWN,
    AskWorker,
    Begun,
    IndexWorker,
    Outcome,
)
from lastseen.errors import IndexStoreError, LastSeenError
from lastseen.index import Index
from lastseen.index.lock import locked
from lastseen.index.record import add_file
from lastseen.query import Query
from lastseen.video import Video
from lastseen.weights import save_model

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from index_kill import contents, make_video, tiny_localizer  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> ModelChoice:
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    save_model(tiny_localizer("maps").model, folder)
    return ModelChoice(weights=str(folder), engine="torch-fp32", threshold=0.02)


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("videos")
    for number, name in enumerate(("a", "b")):
        make_video(root / f"{name}.mp4", 5 + number, number)
        os.utime(root / f"{name}.mp4", (1_000_000_000 + 3600 * number,) * 2)
    return root


@contextmanager
def worker(folder, model):
    made = IndexWorker(str(folder), model, None, 0)
    said = made.begin()
    assert isinstance(said, Begun), said
    try:
        yield made
    finally:
        made.close()


def record(made: IndexWorker, path: Path, name: str | None = None) -> Outcome:
    (source,), _ = sources_of([str(path)])
    return made.record(source, name or path.name, "full", False)


# --- one worker ---


def test_each_living_worker_has_a_shard_of_its_own_and_the_next_ones_go_on_with_it(videos, model, tmp_path):
    with worker(tmp_path, model) as first, worker(tmp_path, model) as second:
        done = record(first, videos / "a.mp4")
        assert (done.outcome, done.shard, done.frames) == ("added", "001", 25)
        assert record(second, videos / "b.mp4").shard == "002"
        # By content, whatever it is called, and whichever shard has it.
        copy = shutil.copy(videos / "a.mp4", tmp_path / "copy.mp4")
        assert record(second, copy).outcome == record(first, copy).outcome == KNOWN
    assert list(places(tmp_path)) == ["001", "002"]
    with worker(tmp_path, model), worker(tmp_path, model), worker(tmp_path, model) as third:
        assert record(third, copy).outcome == KNOWN
        assert list(places(tmp_path)) == ["001", "002", "003"]
    assert list(places(tmp_path)) == ["001", "002"]  # an empty one does not stay


def test_a_video_that_a_dead_worker_began_goes_on_in_its_shard(videos, model, tmp_path):
    class Killed(Exception):
        pass

    def stop(told):
        if told.done >= 12:
            raise Killed

    path = videos / "b.mp4"
    with worker(tmp_path, model) as alive:
        dead = IndexWorker(str(tmp_path), model, None, 1)
        dead.begin()
        with pytest.raises(Killed):
            add_file(dead._writing.index, dead._localizer, path, commit_s=0, progress=stop)
        assert record(alive, path).outcome == ELSEWHERE  # whoever holds that shard must finish it
        dead._writing._held.close()  # as the system does when a process is killed
        with Shards(tmp_path) as shards:
            assert [(one.shard, one.video.complete) for one in shards.held()] == [("002", False)]
            assert shards.known(sources_of([str(path)])[0])[str(path)].shard == "002"
        encoded = []
        alive._tell = lambda told: encoded.append(told.done)
        done = record(alive, path)
        assert (done.outcome, done.shard, done.frames) == ("added", "002", 30)
        assert min(encoded) >= 12  # what was committed is not encoded again
    with Index(tmp_path / "one") as index:
        add_file(index, model.load(), path)
        assert contents(index.folder) == contents(places(tmp_path)["002"])


def test_a_video_that_another_process_has_is_left_to_it(videos, model, tmp_path):
    with worker(tmp_path, model) as made:
        digest = Path(videos / "a.mp4")
        from lastseen.index.identity import sha256_of

        with locked(tmp_path / "locks" / f"{sha256_of(digest)}.lock"):
            assert record(made, videos / "a.mp4").outcome == BUSY
        assert record(made, videos / "a.mp4").outcome == "added"
        bad = tmp_path / "bad.mp4"
        bad.write_bytes(b"not a video at all")
        done = record(made, bad)
        assert done.outcome == FAILED and str(bad) in done.error and "\n" not in done.error
        assert record(made, videos / "b.mp4").outcome == "added"


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_shards_and_videos_may_be_at_addresses(videos, model, tmp_path, monkeypatch, kind):
    import fsspec

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "home"))
    root = f"memory://test-{tmp_path.name}" if kind == "memory" else f"file://{tmp_path}/there"
    storage, path = fsspec.core.url_to_fs(root)
    storage.makedirs(f"{path}/archive", exist_ok=True)
    for name in ("a.mp4", "b.mp4"):
        storage.put_file(str(videos / name), f"{path}/archive/{name}")
    sources, failed = sources_of([f"{root}/archive"])
    assert [source.name for source in sources] == ["a.mp4", "b.mp4"] and not failed
    with worker(f"{root}/index", model) as made:
        assert not storage.exists(f"{path}/index/shards")  # nothing is there before a video is whole
        for source in sources:
            assert made.record(source, source.name, "full", False).outcome == "added"
        assert made.record(sources[0], "again.mp4", "full", False).outcome == KNOWN
    with worker(f"{root}/index", model) as made:
        assert made.record(sources[1], "b.mp4", "full", False).outcome == KNOWN
    cluster = Cluster(f"{root}/index", ray=None, model=model)
    with Shards(cluster.folder) as shards:
        assert shards.known(sources).keys() == {source.place for source in sources}
    query = Query.from_video(Video(videos / "a.mp4"), 1.0, box=(20, 20, 60, 60))
    found = cluster.ask_many({"it": query}, every=True)["it"]
    with Index(tmp_path / "one", localizer=model.load()) as index:
        for name in ("a.mp4", "b.mp4"):
            index.add(videos / name)
        expected = index.ask_many({"it": query}, every=True)["it"]
    assert sightings(found) == sightings(expected)
    assert found and {one.steps for one in found} == {one.steps for one in expected}
    assert {one.video.source for one in found} <= {source.place for source in sources}


def test_a_worker_that_asks_keeps_no_copies_of_videos(model, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = AskWorker("memory://there", model)
    (fetched,) = tmp_path.iterdir()
    (fetched / "copy.mp4").write_bytes(b"a video")
    made.close()
    assert list(tmp_path.iterdir()) == []


def sightings(answers):
    return {one.video.name: one.sightings for one in answers}


def test_what_cannot_be_published_is_not_named_there(videos, model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    from lastseen.cluster import remote

    def full(storage, local, path):
        if local.suffix == ".bin":
            raise IndexStoreError(f"{path}: no space")
        put(storage, local, path)

    put, folder = remote.put, f"file://{tmp_path}/index"
    with worker(folder, model) as made:
        with monkeypatch.context() as patch:
            patch.setattr(remote, "put", full)
            assert "no space" in record(made, videos / "a.mp4").error
        assert record(made, videos / "b.mp4").outcome == "added"
        with Shards(folder) as shards:
            assert [video.name for video in shards.videos()] == ["b.mp4"]
        assert record(made, videos / "a.mp4").outcome == "added"  # tried again
    (shard,) = (tmp_path / "index" / "shards").iterdir()
    with Index(shard) as index:
        assert [index.verify(video) for video in index.videos()] == [[], []]


# --- mistakes ---


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["index", "a.mp4", "--ray", "auto", "--follow"], "--follow does not go with --ray auto"),
        (["index", "a.mp4", "--ray", "127.0.0.1:1"], "--ray 127.0.0.1:1: nothing answers there"),
        (["index", "a.mp4", "--ray", "nonsense"], "expected host:port, or auto"),
        (["index", "rtsp://hall/live", "--ray", "auto"], "a stream belongs to one machine"),
        (["index", "odd://place/videos", "--ray", "auto"], "no such kind of address"),
        (["index", "s3://me:secret@place/videos", "--ray", "auto"], "with a password"),
        (["find", "a.png", "--ray", "auto"], "--ray asks shards, and there are none at"),
        (["find", "a.png", "a.mp4", "--ray", "auto"], "--ray asks an index, and a.mp4 is a video"),
        (["index", "list", "--index", "sharded"], "holds the shards of an index"),
        (["index", "a.mp4", "--index", "sharded"], "holds the shards of an index"),
        (["find", "a.png", "--index", "sharded"], "is empty; add something to search"),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, monkeypatch, videos, arguments, says):
    monkeypatch.chdir(tmp_path)
    shutil.copy(videos / "a.mp4", "a.mp4")
    from PIL import Image

    Image.new("RGB", (64, 64)).save("a.png")
    (tmp_path / "sharded" / "shards").mkdir(parents=True)
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("lastseen: ") and err.count("\n") == 1 and says in err
    assert "secret" not in err


def test_an_index_of_one_machine_is_not_made_shards_of(videos, model, tmp_path):
    with Index(tmp_path / "index"):
        pass
    says = "is an index of one machine; give --ray another --index FOLDER"
    assert says in IndexWorker(str(tmp_path / "index"), model, None, 0).begin()
    with pytest.raises(IndexStoreError, match=says):
        Cluster(tmp_path / "index", model=model).add(videos)


def test_without_ray_and_without_a_driver_one_line_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(LastSeenError, match=r"--ray needs Ray: pip install 'lastseen\[ray\]'"),
        machines("auto"),
    ):
        pass
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(LastSeenError, match="s3://bucket/index: Install s3fs"):
        Shards("s3://bucket/index")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(LastSeenError, match=r"addresses need fsspec: pip install 'lastseen\[ray\]'"):
        sources_of(["gs://bucket/a.mp4"])
    with pytest.raises(IndexStoreError, match="keep odd: choose"):
        Cluster("index").add("a.mp4", keep="odd")
