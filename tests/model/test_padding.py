"""Padding in groups: fewer tokens, the same features within what docs/speed.md says."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from models import SMALL_MAPS, random_model
from PIL import Image

from lastseen.box import Letterbox
from lastseen.engine.half import half_precision
from lastseen.model.padding import padding_groups
from lastseen.video import Video
from lastseen.weights import bundled_model, load_model


@pytest.fixture(scope="module")
def walk() -> torch.Tensor:
    """Frames of the bundled video cut to 16:9, 9:16 turned, and 4:3 as they are."""
    video = Video(bundled_model().parent / "demo.mp4")
    frames = [frame.image for frame in video.frames(0.2)][:3]
    return torch.from_numpy(np.stack(frames))


def shaped(frames: torch.Tensor, width: int, height: int) -> torch.Tensor:
    resized = [np.asarray(Image.fromarray(frame.numpy()).resize((width, height))) for frame in frames]
    return torch.from_numpy(np.stack(resized))


@pytest.mark.parametrize("width, height", [(640, 360), (360, 640), (640, 480), (1000, 200), (640, 350)])
def test_every_patch_of_the_picture_stands_for_itself_and_all_are_counted_once(width, height):
    letterbox = Letterbox.square(width, height, 448)
    groups = padding_groups(letterbox, 14)
    stand_in, encoded = np.array(groups.stand_in), np.array(groups.encoded)
    assert np.array_equal(np.bincount(stand_in), groups.counts)
    assert len(stand_in) == sum(groups.counts) == 32 * 32
    for patch in range(32 * 32):
        row, column = divmod(patch, 32)
        shows = (letterbox.top < (row + 1) * 14 and row * 14 < letterbox.top + letterbox.content_height) and (
            letterbox.left < (column + 1) * 14 and column * 14 < letterbox.left + letterbox.content_width
        )
        if shows:
            assert encoded[stand_in[patch]] == patch and groups.counts[stand_in[patch]] == 1
        else:
            other_row, other_column = divmod(int(encoded[stand_in[patch]]), 32)
            assert abs(other_row - row) <= 3 and abs(other_column - column) <= 3


def test_a_16_9_frame_needs_five_eighths_of_the_tokens_and_a_square_one_all():
    assert len(padding_groups(Letterbox.square(1920, 1080, 448), 14).encoded) == 640
    assert len(padding_groups(Letterbox.square(1080, 1920, 448), 14).encoded) == 640
    assert padding_groups(Letterbox.square(500, 500, 448), 14) is None
    assert padding_groups(Letterbox.snug(640, 360, 448, 14), 14) is None


@torch.inference_mode()
@pytest.mark.parametrize("width, height", [(640, 360), (270, 480), (320, 240)])
def test_the_bundled_model_keeps_its_features(walk, width, height):
    model = load_model(bundled_model())
    frames = shaped(walk[:1], width, height)
    dense, grouped = model.encode_frames(frames), model.encode_frames(frames, group_padding=True)
    assert grouped.shape == dense.shape
    letterbox = model.letterbox(width, height)
    rows = slice(letterbox.top // 14, -(-(letterbox.top + letterbox.content_height) // 14))
    columns = slice(letterbox.left // 14, -(-(letterbox.left + letterbox.content_width) // 14))
    cosines = F.cosine_similarity(dense, grouped, dim=1)[:, rows, columns]
    assert cosines.mean() > 0.9995
    assert cosines.flatten().quantile(0.01) > 0.997


@torch.inference_mode()
def test_counting_a_group_as_often_as_it_has_members_is_what_keeps_them(walk, monkeypatch):
    model = load_model(bundled_model())
    frames = shaped(walk[:1], 320, 180)
    dense = model.encode_frames(frames)
    monkeypatch.setattr(
        "lastseen.model.padding.PaddingGroups.attention_bias",
        lambda groups, others, like: torch.zeros(2 * (others + len(groups.encoded),)),
    )
    uncounted = model.encode_frames(frames, group_padding=True)
    assert F.cosine_similarity(dense, uncounted, dim=1).mean() < 0.998


@torch.inference_mode()
def test_the_folded_model_groups_as_the_model_does():
    model = random_model(SMALL_MAPS)
    frames = torch.randint(0, 256, (2, 36, 64, 3), dtype=torch.uint8)
    expected = model.encode_frames(frames, group_padding=True)
    assert not torch.equal(expected, model.encode_frames(frames))
    same = half_precision(model, torch.float32).encode_frames(frames, group_padding=True)
    torch.testing.assert_close(same, expected, rtol=1e-4, atol=1e-4)
