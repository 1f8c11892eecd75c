import numpy as np
import pytest
import torch
from models import vqloc
from scenes import HERE, PLACES, SIDE, THERE, WIDTH, box_at, quick_localizer, texture, thing, write_scene
from videos import write_video

from lastseen.box import Box
from lastseen.errors import LastSeenError, QueryError
from lastseen.localizer import Localizer
from lastseen.procedure import Published
from lastseen.query import Query
from lastseen.sighting import Evidence
from lastseen.video import Video


@pytest.fixture(scope="module")
def localizer() -> Localizer:
    return quick_localizer()


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Video:
    return Video(write_scene(tmp_path_factory.mktemp("scene") / "scene.mp4", PLACES))


@pytest.fixture(scope="module")
def predictions(localizer, video):
    return localizer.predict(video, [Query.from_array(thing())])[0]


def test_the_last_occurrence_is_found_where_it_is(localizer, predictions):
    track = localizer.procedure.tracks(Evidence.of(predictions))[0][-1]
    assert abs(track.first_frame - 16) <= 1
    assert abs(track.last_frame - 21) <= 1
    assert track.boxes[2].iou(box_at(THERE)) > 0.5


def test_every_occurrence_is_listed(localizer, predictions):
    tracks = localizer.procedure.tracks(Evidence.of(predictions))[0]
    assert len(tracks) == 2
    assert tracks[0].boxes[2].iou(box_at(HERE)) > 0.5


def test_a_question_asked_earlier_gets_the_earlier_answer(localizer, video):
    track = localizer.locate(video, Query.from_array(thing(), asked_at=3.0))
    assert track is not None
    assert track.last_frame < 15
    assert track.boxes[2].iou(box_at(HERE)) > 0.5


def test_a_thing_that_never_appears_is_not_seen(localizer, video):
    nowhere = texture(99, SIDE, SIDE, 4)
    assert localizer.locate(video, Query.from_array(nowhere)) is None


def test_mirroring_a_video_mirrors_the_answer(localizer, predictions, tmp_path):
    mirrored = Video(write_scene(tmp_path / "mirrored.mp4", PLACES, mirrored=True))
    query = Query.from_array(np.ascontiguousarray(thing()[:, ::-1]))
    plain = localizer.procedure.tracks(Evidence.of(predictions))[0][-1]
    answer = localizer.locate(mirrored, query)
    assert answer is not None
    assert abs(answer.first_frame - plain.first_frame) <= 1
    assert abs(answer.last_frame - plain.last_frame) <= 1
    box = plain.boxes[2]
    assert answer.boxes[2].iou(Box(WIDTH - box.x2, box.y1, WIDTH - box.x1, box.y2)) > 0.7


def test_several_queries_in_one_pass_get_the_answers_of_each_alone(localizer, video, predictions):
    other = Query.from_array(texture(5, SIDE, SIDE, 8), asked_at=2.0)
    both = localizer.predict(video, [other, Query.from_array(thing())])
    assert len(both[0]) == 10
    np.testing.assert_allclose(both[1].logits, predictions.logits, atol=1e-4)
    np.testing.assert_allclose(both[1].boxes_px, predictions.boxes_px, atol=1e-3)


def test_of_several_pictures_the_best_counts_on_each_frame(localizer, video, predictions):
    pictures = Query.joined([Query.from_array(texture(5, SIDE, SIDE, 8)), Query.from_array(thing())])
    joined = localizer.predict(video, [pictures])[0]
    assert (joined.logits >= predictions.logits - 1e-4).all()


def test_progress_is_told_to_the_end(localizer, video):
    told = []
    localizer.predict(video, [Query.from_array(thing())], lambda one: told.append((one.done, one.total)))
    assert told == sorted(told)
    assert told[-1] == (26, 26)


@pytest.mark.parametrize(
    ("asked_at", "message"), [(0.0, "starts at 0 s"), (-3, "starts at 0 s"), (60, "past the end")]
)
def test_a_question_asked_outside_the_video_is_an_error(localizer, video, asked_at, message):
    with pytest.raises(QueryError, match=message):
        localizer.predict(video, [Query.from_array(thing(), asked_at=asked_at)])


def test_a_device_that_is_not_there_is_an_error():
    with pytest.raises(LastSeenError, match="try cpu"):
        Localizer.from_pretrained(device="cuda:99" if torch.cuda.is_available() else "cuda")
    with pytest.raises(LastSeenError, match="try cpu"):
        Localizer.from_pretrained(device="toaster")


# --- VQLoC in clips: random weights, no positions, so that a frame's prediction cannot depend on its clip ---


@pytest.fixture(scope="module")
def noise(tmp_path_factory) -> Video:
    pictures = [texture(i, 64, 48, 8) for i in range(73)]
    return Video(write_video(tmp_path_factory.mktemp("noise") / "noise.mp4", pictures, fps=5))


def test_no_frame_is_blind_at_a_clip_border(noise):
    query = Query.from_array(texture(40, 64, 48, 8))
    in_clips = Localizer(vqloc()).predict(noise, [query])[0]
    at_once = Localizer(vqloc(73)).predict(noise, [query])[0]
    assert len(in_clips) == 73
    np.testing.assert_allclose(in_clips.logits, at_once.logits, atol=1e-4)
    side_by_side = Localizer(vqloc(), procedure=Published()).predict(noise, [query])[0]
    assert not np.allclose(side_by_side.logits[26:34], at_once.logits[26:34], atol=1e-3)


@torch.no_grad()
def test_paper_mode_takes_clips_side_by_side_and_pads_the_last_with_its_last_frame(noise):
    model = vqloc(positions=True)
    picture = texture(40, 64, 48, 8)
    got = Localizer(model, procedure=Published()).predict(noise, [Query.from_array(picture)])[0]
    frames = torch.from_numpy(np.stack([frame.image for frame in noise.frames(5)]))
    features = model.encode_frames(frames)
    query = model.encode_query(torch.from_numpy(picture), Box(0, 0, 64, 48))
    clips = [features[:30], features[30:60], torch.cat([features[60:], features[-1:].expand(17, -1, -1, -1)])]
    logits = torch.cat([model.localize_clip(clip, query).best().logits[0] for clip in clips])[:73]
    np.testing.assert_allclose(got.logits, logits, atol=1e-4)


def test_frames_after_the_question_are_not_seen_by_those_before(noise, tmp_path):
    model = vqloc(positions=True)
    picture = texture(40, 64, 48, 8)
    asked = Localizer(model).predict(noise, [Query.from_array(picture, asked_at=8.2)])[0]
    cut = Video(noise.path, end_s=8.2)
    alone = Localizer(model).predict(cut, [Query.from_array(picture)])[0]
    assert len(asked) == len(alone) == 41
    np.testing.assert_allclose(asked.logits, alone.logits, atol=1e-5)


def test_paper_mode_always_answers_with_score_one(noise):
    track = Localizer(vqloc(), procedure=Published()).locate(noise, Query.from_array(texture(40, 64, 48, 8)))
    assert track is not None
    assert track.score == 1.0


def test_frames_in_which_nothing_changes_are_encoded_once_and_have_the_same_bits(
    localizer, tmp_path, monkeypatch
):
    still = [texture(3, WIDTH, 180, 16)] * 13 + [texture(4, WIDTH, 180, 16)] * 9
    video = Video(write_video(tmp_path / "still.mkv", still, fps=5, codec="ffv1"))
    exact = [localizer.encode_pictures([frame.image]) for frame in video.frames(5.0)]
    encode, batches = type(localizer).encode_pictures, []

    def counting(self, pictures):
        batches.append(len(pictures))
        return encode(self, pictures)

    monkeypatch.setattr(type(localizer), "encode_pictures", counting)
    found = torch.cat(list(localizer.encoded(video, 0, 22)))
    assert len(found) == 22 and batches == [4, 4, 4, 2]
    assert torch.allclose(found.float(), torch.cat(exact).float(), atol=1e-2)
    assert torch.equal(found[:4], found[4:8]) and torch.equal(found[8:12], found[:4])
