"""Evidence that is kept, and rules compared on it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compare_rules import Ends, Variant, answer, cells, sets_in
from keep_evidence import Kept, KeptPeak, KeptWindow, load_kept, save_kept, with_head_score
from models import SMALL_MAPS, random_model

from lastseen.box import Box
from lastseen.localizer import Localizer
from lastseen.query import Query, View
from lastseen.rule import Rule
from lastseen.sighting import Extraction
from lastseen.track import ResponseTrack

FRAMES, SEEN = 60, slice(20, 30)
BOX = (10.0, 10.0, 50.0, 50.0)
FIRST_PASS = Variant(windows=0)


def kept(**fields) -> Kept:
    """A thing in ten frames, whose track runs on for six more in the first pass."""
    logits = np.full(FRAMES, -6.0)
    logits[20:36] = 4.0
    similarity = np.tile([0.3, -0.1, 0.4], (FRAMES, 1))
    similarity[SEEN] = 0.8, 0.3, 0.8
    found = {
        "video_uid": "v",
        "truth": ResponseTrack(first_frame=20, fps=5.0, boxes=(Box(*BOX),) * 10, score=1.0),
        "plain": False,
        "fps": 5.0,
        "factors": (1.0, 1.0, 1.0, 1.0),
        "boxes_px": np.tile(BOX, (FRAMES, 1)),
        "logits": logits,
        "full_logits": logits + 3.0,
        "windows": (),
        "peaks": (KeptPeak(peak=24, confidence=0.7, start=0, similarity=similarity, others=()),),
        "found_logits": np.where(np.arange(FRAMES) >= 50, 8.0, -9.0),
    }
    return Kept(**{**found, **fields})


def answered(one: Kept, variant: Variant) -> ResponseTrack:
    return answer(one, variant, Rule(), 0.25)


def test_what_is_kept_is_read_again(tmp_path):
    window = KeptWindow(
        first=20,
        last=35,
        confidence=0.5,
        start=18,
        side=112,
        boxes_px=np.tile(BOX, (4, 1)),
        logits=np.arange(4.0),
        full_logits=np.arange(4.0) + 1,
    )
    one = kept(windows=(window,))
    save_kept([one, replace(one, truth=None)], tmp_path / "set@photo.json.gz")
    again, absent = load_kept(tmp_path / "set@photo.json.gz")
    assert again.truth == one.truth and absent.truth is None
    np.testing.assert_array_equal(again.logits, one.logits)
    np.testing.assert_array_equal(again.windows[0].boxes_px, window.boxes_px)
    np.testing.assert_allclose(again.peaks[0].similarity, one.peaks[0].similarity)
    assert answered(again, Variant()) == answered(one, Variant())


def test_parts_of_a_set_are_one_set(tmp_path):
    save_kept([kept(video_uid="a")], tmp_path / "rooms.0@photo.json.gz")
    save_kept([kept(video_uid="b")], tmp_path / "rooms.1@photo.json.gz")
    save_kept([kept(video_uid="a")], tmp_path / "rooms.0@crop.json.gz")
    sets = sets_in(tmp_path)
    assert {name: [one.video_uid for one in rows] for name, rows in sets.items()} == {
        "rooms@photo": ["a", "b"],
        "rooms@crop": ["a"],
    }


def test_ends_by_similarity_to_the_peak_cut_a_track_that_runs_on():
    track = answered(kept(), FIRST_PASS)
    assert (track.first_frame, track.last_frame) == (20, 35)
    track = answered(kept(), replace(FIRST_PASS, ends=Ends(min_cosine=0.5)))
    assert (track.first_frame, track.last_frame) == (20, 29)


def test_a_gap_ends_a_sighting_that_a_short_one_does_not_end():
    similarity = kept().peaks[0].similarity.copy()
    similarity[26:28] = 0.2
    peak = replace(kept().peaks[0], similarity=similarity)
    short = answered(kept(peaks=(peak,)), replace(FIRST_PASS, ends=Ends(min_cosine=0.5)))
    assert short.last_frame == 29
    similarity[26:29] = 0.2
    long = answered(kept(peaks=(peak,)), replace(FIRST_PASS, ends=Ends(min_cosine=0.5)))
    assert long.last_frame == 25


def test_a_found_view_is_remembered_only_if_it_was_sure():
    sure = replace(FIRST_PASS, memory=0.9, memory_bar=0.6)
    assert answered(kept(), sure).first_frame >= 49
    assert answered(kept(), replace(sure, memory_bar=0.8)) == answered(kept(), FIRST_PASS)


def test_the_heads_part_of_a_logit_is_linear_in_its_weight():
    scores = [answered(kept(), replace(FIRST_PASS, head_weight=weight)).score for weight in (0.0, 0.25, 1.0)]
    assert scores == sorted(scores) and scores[0] < scores[2]
    assert scores[1] == pytest.approx(answered(kept(), FIRST_PASS).score)


def test_a_low_gain_tells_peaks_of_high_logits_apart():
    logits = kept().logits.copy()
    logits[20:30], logits[30:36], logits[45:50] = 7.0, -6.0, 3.0
    steep, flat = (
        answered(kept(logits=logits), replace(FIRST_PASS, extraction=Extraction(gain=gain)))
        for gain in (1.0, 0.25)
    )
    assert (steep.first_frame, flat.first_frame) == (45, 20)


def test_a_row_counts_hits_and_what_was_answered_too_late():
    late = replace(answered(kept(), FIRST_PASS), first_frame=40)
    rows = [one, absent] = [kept(), kept(truth=None)]
    right = list(cells(rows, [answered(one, FIRST_PASS), answered(absent, FIRST_PASS)]))
    wrong = list(cells(rows, [late, late]))
    assert right[6] == "1.000" and right[8:] == ["0.00", "0.00"]
    assert wrong[6] == "0.000" and wrong[8:] == ["1.00", "0.00"]


@torch.inference_mode()
@pytest.mark.parametrize("engine", ["torch-fp32", "torch-bf16"])
def test_all_of_the_heads_score_is_kept_by_every_engine(engine):
    saved = Localizer(random_model(replace(SMALL_MAPS, head_score_weight=0.25)), engine=engine)
    features = F.normalize(torch.randn(3, 32, 16, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    picture = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
    query = saved.encode_query(Query((View(picture, Box(10, 10, 50, 50)),)))
    logits, full = (
        localizer.localize_clip(features, query)[1] for localizer in (saved, with_head_score(saved, 1.0))
    )
    assert np.abs(full - logits).max() > 0.1
    assert saved.model.config.head_score_weight == 0.25
