"""Small features: all tokens of a frame in few bits, enough to answer from without the video."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from scenes import PLACES, box_at, quick_localizer, texture, thing, write_scene

from lastseen.errors import IndexStoreError, WeightsError
from lastseen.index import Index
from lastseen.index.record import add_file
from lastseen.index.repair import repair
from lastseen.index.search import search
from lastseen.index.small import LENGTH, SmallGrid
from lastseen.model.token_basis import BANDS, BLOCK_BYTES, SUMS, TokenBasis
from lastseen.procedure import Published
from lastseen.query import Query
from lastseen.tensors import save_tensors
from lastseen.video import Video
from lastseen.weights import TOKEN_BASIS_FILE, bundled_model, load_token_basis, save_token_basis

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return write_scene(tmp_path_factory.mktemp("scene") / "walk.mp4", PLACES)


@pytest.fixture(scope="module")
def localizer(scene):
    """With a basis fitted to pictures that are not in the scene."""
    localizer = quick_localizer()
    blocks = []
    for seed in range(8):
        pictures = [texture(10 * seed + number, 320, 180, 9 + 4 * seed) for number in range(4)]
        pictures[0][40:104, 60:124] = thing(seed)
        features = localizer.encode_pictures(pictures).float()[:, :, :10]
        blocks.append(rearrange(features, "n c (y v) (x u) -> (n y x) (v u c)", v=2, u=2))
    blocks = torch.cat(blocks)
    localizer.token_basis = TokenBasis.fitted(blocks.mean(0), torch.cov(blocks.T), torch.ones(2, 3, 384))
    return localizer


@pytest.fixture(scope="module")
def query():
    return Query.from_array(thing())


def answered(index, localizer, query):
    (answer,) = search(index, localizer, {"it": query})["it"]
    return answer


def test_the_bundled_model_has_a_basis_that_keeps_cosines():
    basis = load_token_basis(bundled_model())
    torch.testing.assert_close(basis.axes.T @ basis.axes, torch.eye(384), rtol=0, atol=2e-3)
    generator = torch.Generator().manual_seed(0)
    bands = basis.deviations * torch.randn(200, BANDS, 384, generator=generator)
    spread = torch.einsum("bp,nba->npa", torch.tensor(SUMS), bands)
    vectors = F.normalize(basis.mean + spread @ basis.axes.T, dim=-1)
    codes = basis.encode(vectors)
    assert codes.shape == (200, BLOCK_BYTES) and codes.dtype == np.uint8
    decoded = basis.decode(codes)
    assert F.cosine_similarity(decoded, vectors, dim=-1).mean() > 0.98
    exact = torch.einsum("npc,kc->npk", decoded, vectors[:7, 0])
    torch.testing.assert_close(basis.cosines(codes, vectors[:7, 0]), exact, rtol=0, atol=2e-3)


def test_of_flat_surfaces_nearly_nothing_is_lost(localizer):
    """Neighbours are alike: their sum has most of the bits."""
    basis = localizer.token_basis
    generator = torch.Generator().manual_seed(1)
    some = F.normalize(
        basis.mean + basis.deviations[0] / 2 * torch.randn(50, 384, generator=generator) @ basis.axes.T,
        dim=-1,
    )
    flat, mixed = some[:, None].expand(-1, BANDS, -1), some[:48].view(12, BANDS, -1)
    lost = [1 - F.cosine_similarity(basis.decode(basis.encode(v)), v, dim=-1).mean() for v in (flat, mixed)]
    assert lost[0] < lost[1]


def test_an_answer_from_the_index_alone_is_that_of_the_video(scene, localizer, query, tmp_path):
    exact = localizer.ask(Video(scene), query)
    with Index(tmp_path / "index", create=True) as index:
        add_file(index, localizer, scene, keep="small")
        (video,) = index.videos()
        assert video.compact_bytes == -(-video.grid[1] // 2) * -(-video.grid[2] // 2) * BLOCK_BYTES
        moved = scene.rename(tmp_path / "gone.mp4")
        try:
            answer = answered(index, localizer, query)
        finally:
            moved.rename(scene)
        assert answer.found and not answer.damage
        assert (answer.last.first_frame, answer.last.last_frame) == (
            exact.last.first_frame,
            exact.last.last_frame,
        )
        assert all(a.iou(b) > 0.8 for a, b in zip(answer.last.boxes, exact.last.boxes))
        assert index.verify(video) == []


def test_small_is_the_default_of_a_model_that_has_a_basis(scene, localizer, tmp_path):
    with Index(tmp_path / "small", create=True, localizer=localizer) as index:
        assert index.add(scene).video.keep == "small"
    with Index(tmp_path / "full", create=True, localizer=quick_localizer()) as index:
        assert index.add(scene).video.keep == "full"
    exact = copy.copy(localizer)
    exact.procedure = Published()
    with Index(tmp_path / "paper", create=True, localizer=exact) as index:
        assert index.add(scene).video.keep == "full"
    assert load_token_basis(bundled_model()) is not None


def test_an_index_of_full_features_goes_on_with_small_ones(scene, localizer, query, tmp_path):
    """As indexes do that were begun before small features were the default."""
    later = write_scene(tmp_path / "later.mp4", PLACES)
    with later.open("ab") as file:
        file.write(b"\0" * 16)  # another file by its content
    with Index(tmp_path / "index", create=True) as index:
        add_file(index, localizer, scene, keep="full", recorded=1e9)
        exact = answered(index, localizer, query)
        add_file(index, localizer, later, recorded=1e9 + 3600)
        assert [video.keep for video in index.videos()] == ["full", "small"]
        both = search(index, localizer, {"it": query}, every=True)["it"]
        assert [answer.video.name for answer in both] == ["later.mp4", "walk.mp4"]
        assert both[1].sightings == exact.sightings
        span = both[0].last.first_frame, both[0].last.last_frame
        assert span == (exact.last.first_frame, exact.last.last_frame)


def test_an_hour_of_16_9_fits_in_a_gigabyte(localizer):
    from lastseen.box import Letterbox

    grid = SmallGrid.fitting(localizer.token_basis, 32, 32, Letterbox.square(1920, 1080, 448))
    assert 18_000 * grid.row_bytes < 1e9


def test_padding_is_left_out_and_comes_back_as_it_is_on_average(localizer):
    from lastseen.box import Letterbox

    grid = SmallGrid.fitting(localizer.token_basis, 32, 32, Letterbox.square(360, 640, 448))
    vectors = F.normalize(torch.randn(2, 384, 32, 32), dim=1)
    packed = grid.pack(vectors, 0)
    assert packed.shape == (2, grid.row_bytes) == (2, 16 * 9 * BLOCK_BYTES)
    features = grid.unpack(packed)
    before, after = grid.basis.padding
    for column, vector in ((6, before[0]), (5, before[1]), (0, before[2]), (25, after[0]), (31, after[2])):
        torch.testing.assert_close(features[:, :, :, column], vector[None, :, None].expand(2, -1, 32))
    torch.testing.assert_close(features[:, :, :, 7:25].norm(dim=1), torch.full((2, 32, 18), LENGTH))


def test_four_frames_show_every_token_to_the_first_search(localizer):
    basis = localizer.token_basis
    grid = SmallGrid(basis, 0, 0, 5, 7, 5, 7)
    vectors = F.normalize(torch.randn(5 * 7, 384), dim=1)
    frame = vectors.T.reshape(1, 384, 5, 7)
    packed = grid.pack(frame.repeat(4, 1, 1, 1), 0)
    decoded = grid.unpack(packed[:1])[0].flatten(1).T
    similarity = grid.similarity(packed, decoded, 0)
    assert (similarity.amax((0, 1)) > 0.999 * LENGTH).all()


def test_damage_is_made_again_to_the_bit(scene, localizer, query, tmp_path):
    with Index(tmp_path / "index", create=True) as index:
        add_file(index, localizer, scene, keep="small")
        before = answered(index, localizer, query)
        (video,) = index.videos()
        (file,) = index.place(video).glob("compact-*")
        sound = file.read_bytes()
        broken = bytearray(sound)
        broken[5000] ^= 0x10
        file.write_bytes(broken)
    with Index(tmp_path / "index") as index:
        answer = answered(index, localizer, query)
        assert answer.sightings == before.sightings
        assert answer.damage and "encoded again" in answer.damage[0]
        (video,) = index.videos()
        assert "the same bits" in repair(index, localizer, video).done
        assert file.read_bytes() == sound


def test_a_model_without_a_basis_is_refused_at_once(scene, tmp_path):
    with Index(tmp_path / "index", create=True) as index:
        with pytest.raises(IndexStoreError, match="--keep full or --keep compact"):
            add_file(index, quick_localizer(), scene, keep="small")
        assert index.videos() == []


def test_another_basis_is_refused(scene, localizer, query, tmp_path):
    with Index(tmp_path / "index", create=True) as index:
        add_file(index, localizer, scene, keep="small")
        other = quick_localizer()
        basis = localizer.token_basis
        other.token_basis = replace(basis, deviations=2 * basis.deviations)
        with pytest.raises(IndexStoreError, match="another token_basis"):
            answered(index, other, query)


def test_a_basis_survives_its_file_and_a_malformed_one_is_an_error(localizer, tmp_path):
    save_token_basis(localizer.token_basis, tmp_path)
    loaded = load_token_basis(tmp_path)
    torch.testing.assert_close(loaded.axes, localizer.token_basis.axes, rtol=0, atol=1e-3)
    save_tensors({"mean": torch.zeros(384)}, tmp_path / TOKEN_BASIS_FILE)
    with pytest.raises(WeightsError, match="is no token basis"):
        load_token_basis(tmp_path)
    assert load_token_basis(tmp_path / "elsewhere") is None


def test_small_features_are_searched_where_they_are_promising(scene, localizer, tmp_path):
    """By candidates, as a long video is."""
    with Index(tmp_path / "index", create=True) as index:
        add_file(index, localizer, scene, keep="small")
        query = Query.from_array(thing())
        (answer,) = search(index, localizer, {"it": query}, candidates=1)["it"]
        assert answer.found
        middle = answer.last.boxes[len(answer.last.boxes) // 2]
        assert middle.iou(box_at((210, 90))) > 0.5
        assert np.isfinite(answer.curve.scores).all()
