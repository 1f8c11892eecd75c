"""Following a target: both trackers, both ends of a track, and the weights file of the one that has one."""

import numpy as np
import pytest
import torch
from models import TINY, randomised
from scenes import SIDE, texture, thing
from scipy.special import logit
from torch import nn

from lastseen.baselines.nanotrack import NanoTrack
from lastseen.baselines.nanotrack_network import NanoTrackNetwork, load_nanotrack
from lastseen.baselines.particle_filter import ParticleFilter
from lastseen.baselines.peaks import PeakRule
from lastseen.baselines.tracking import Ends, Track, backward_pictures, followed
from lastseen.box import Box
from lastseen.errors import WeightsError
from lastseen.model import Backbone
from lastseen.sighting import Evidence

pytestmark = pytest.mark.usefixtures("one_thread")
WIDTH, HEIGHT = 240, 160
PATH = [(40 + 4 * n, 30 + 2 * n) for n in range(12)]  # of the thing's corner


def pictures() -> list[np.ndarray]:
    background = texture(0, WIDTH, HEIGHT, 20)
    made = []
    for x, y in PATH:
        picture = background.copy()
        picture[y : y + SIDE, x : x + SIDE] = thing()
        made.append(picture)
    return made


class Footage:
    """Pictures by number; counts what was read."""

    def __init__(self, frames: list[np.ndarray]) -> None:
        self.frames, self.reads = frames, []

    def pictures(self, start, stop):
        self.reads.append((start, stop))
        return iter(self.frames[start:stop])


class Colours(nn.Module):
    """In place of a backbone: the colours themselves, so that a look is where each colour is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, crops):
        cells = nn.functional.adaptive_avg_pool2d(crops, 6)
        return cells.flatten(1)[:, :, None, None]


class Counting:
    """A tracker whose box moves by a pixel a frame, and which loses its target after `life` frames."""

    name, stop, keeps_lost_frame = "counting", 0.5, False

    def __init__(self, life: int) -> None:
        self.life = life

    def start(self, picture, box):
        return CountingTarget(self.life, box)


class CountingTarget:
    def __init__(self, life, box):
        self.left, self.box = life, box

    def follow(self, picture):
        self.left, self.box = self.left - 1, self.box.shifted(1, 0)
        return self.box, 1.0 if self.left >= 0 else 0.0


def evidence(scores) -> Evidence:
    boxes = np.array([[n, 10.6, n + 20.9, 40] for n in range(len(scores))], float)
    return Evidence(fps=5.0, boxes_px=boxes, logits=logit(np.array(scores, float)))


PEAK = [0.1] * 10 + [0.5, 0.8, 0.9, 0.9, 0.9, 0.8, 0.5] + [0.1] * 10  # smoothed: its top begins at frame 12


def test_a_track_goes_both_ways_from_the_peak_until_the_target_is_lost():
    found = Track(PeakRule(), Counting(3)).followed(evidence(PEAK), Footage(pictures() * 3))
    ((first, last),) = found.extents
    assert last - first == 6
    peak = (first + last) // 2
    assert peak in (12, 13, 14)
    assert found.boxes_px[peak].tolist() == [peak, 10, peak + 20, 40]  # truncated, as in the originals
    assert found.boxes_px[peak + 3, 0] == found.boxes_px[peak - 3, 0] == peak + 3


def test_the_frame_in_which_a_target_is_lost_belongs_to_the_track_only_where_the_original_keeps_it():
    tracker = Counting(2)
    assert len(followed(tracker, np.zeros(1), Box(0, 0, 9, 9), iter(range(9)))) == 2
    tracker.keeps_lost_frame = True
    assert len(followed(tracker, np.zeros(1), Box(0, 0, 9, 9), iter(range(9)))) == 3


def test_without_a_peak_the_answer_is_the_last_frame_alone_and_no_picture_is_read():
    footage = Footage([])
    found = Track(PeakRule(), Counting(3)).followed(evidence([0.2] * 9), footage)
    assert (found.extents, footage.reads) == (((8, 8),), [])


def test_our_ends_are_where_the_smoothed_score_falls_below_its_share_of_the_peaks():
    found = Ends(PeakRule()).followed(evidence(PEAK), Footage([]))
    assert found.extents == ((11, 15),)


def test_going_backward_reads_a_few_frames_at_a_time():
    footage = Footage(list(range(100)))
    assert list(backward_pictures(footage, 70)) == list(range(69, -1, -1))
    assert footage.reads == [(38, 70), (6, 38), (0, 6)]


def test_particles_follow_what_looks_like_the_target():
    frames = pictures()
    (x, y) = PATH[0]
    tracker = ParticleFilter(backbone=Colours(), crop_px=24, stop=0.0)
    boxes = followed(tracker, frames[0], Box.from_xywh(x, y, SIDE, SIDE), iter(frames[1:]))
    overlaps = [box.iou(Box.from_xywh(*place, SIDE, SIDE)) for box, place in zip(boxes, PATH[1:])]
    assert len(overlaps) == len(PATH) - 1
    assert min(overlaps) > 0.4


def test_particles_lose_a_target_that_is_gone():
    frames = pictures()
    gone = texture(5, WIDTH, HEIGHT, 3)
    (x, y) = PATH[0]
    tracker = ParticleFilter(backbone=Colours(), crop_px=24)
    boxes = followed(tracker, frames[0], Box.from_xywh(x, y, SIDE, SIDE), iter([frames[1], gone, gone]))
    assert len(boxes) == 2  # the frame that fails is kept


def test_particles_are_the_same_for_the_same_seed():
    backbone = randomised(Backbone(TINY))
    frames = pictures()
    runs = [
        followed(
            ParticleFilter(backbone=backbone, particles=10, crop_px=28, stop=-1.0, seed=seed),
            frames[0],
            Box(40, 30, 104, 94),
            iter(frames[1:3]),
        )
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1] != runs[2]


# --- NanoTrack --------------------------------------------------------------------------------------


class Oracle(nn.Module):
    """In place of the network: says that the box is `sides` large and `shift` px right of the middle."""

    def __init__(self, shift: float, sides: float, score: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.shift, self.sides, self.score = shift, sides, score

    def encode(self, crops):
        self.seen = crops
        return crops

    def compare(self, template, search):
        places = (torch.arange(16) - 8) * 16.0
        score = torch.full((1, 16, 16), 0.1)
        score[0, 8, 8] = self.score
        half = torch.full((16, 16), self.sides / 2)
        across, down = self.shift - places[None, :], -places[:, None]
        return score, torch.stack([half - across, half - down, half + across, half + down])[None]


def test_nanotrack_moves_the_box_by_what_the_network_says_in_pixels_of_the_frame():
    frame = np.zeros((200, 200, 3), np.uint8)
    target = NanoTrack(network=Oracle(shift=12.7, sides=63.5)).start(frame, Box(80, 80, 120, 120))
    # 40 px and their surroundings, 80 px, are the template's 127 px: 63.5 are 40 px again, 12.7 are 8.
    box, score = target.follow(frame)
    assert score == 1.0
    np.testing.assert_allclose(box.xyxy, (88, 80, 128, 120), atol=1e-4)


def test_nanotrack_reads_a_square_twice_the_templates_in_blue_green_red():
    frame = np.zeros((200, 200, 3), np.uint8)
    frame[..., 0] = 10
    frame[90:110, 90:110] = (200, 100, 50)
    network = Oracle(0, 63.5)
    target = NanoTrack(network=network).start(frame, Box(80, 80, 120, 120))
    assert network.seen.shape == (1, 3, 127, 127)
    target.follow(frame)
    assert network.seen.shape == (1, 3, 255, 255)
    assert network.seen[0, :, 127, 127].tolist() == pytest.approx([50, 100, 200], abs=1)
    bright = network.seen[0, 2] > 100
    assert int(bright.any(0).sum()) == pytest.approx(255 * 20 / 160.6, abs=2)


def test_beyond_the_picture_nanotrack_sees_its_mean_colour():
    frame = np.full((60, 60, 3), 90, np.uint8)
    network = Oracle(0, 63.5)
    NanoTrack(network=network).start(frame, Box(0, 0, 40, 40))
    torch.testing.assert_close(network.seen, torch.full((1, 3, 127, 127), 90.0))


def test_the_network_has_the_sizes_of_the_published_one_and_a_third_of_a_million_weights():
    network = randomised(NanoTrackNetwork())
    with torch.inference_mode():
        template, search = (
            network.encode(torch.rand(1, 3, 127, 127)),
            network.encode(torch.rand(1, 3, 255, 255)),
        )
        scores, sides = network.compare(template, search)
    assert (template.shape, search.shape) == ((1, 48, 8, 8), (1, 48, 16, 16))
    assert (scores.shape, sides.shape) == ((1, 16, 16), (1, 4, 16, 16))
    assert ((scores >= 0) & (scores <= 1)).all() and (sides > 0).all()
    assert 3.2e5 < sum(p.numel() for p in network.parameters()) < 3.6e5


def test_its_weights_file_loads_strictly_and_runs_no_code(tmp_path):
    network = randomised(NanoTrackNetwork())
    kept = tmp_path / "nanotrack.pth"
    state = {**network.state_dict(), "neck.downsample.0.weight": torch.ones(1)}
    torch.save({"epoch": 34, "state_dict": state, "loss": np.float64(0.5)}, kept)
    loaded = load_nanotrack(kept)
    assert all(torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), network.state_dict().values()))

    from models import Evil

    for number, content in enumerate(({"state_dict": {"a": torch.ones(1)}}, {"state_dict": Evil()}, [1])):
        other = tmp_path / f"{number}.pth"
        torch.save(content, other)
        with pytest.raises(WeightsError) as error:
            load_nanotrack(other)
        assert str(error.value).startswith(str(other)) and "\n" not in str(error.value)
    with pytest.raises(WeightsError, match="no such file"):
        load_nanotrack(tmp_path / "missing.pth")
