"""Pairs for matching: what is called right shows the thing, what is called wrong does not."""

import math

import numpy as np
import pytest
import torch
from walks import (
    BLUE,
    CYAN,
    GREEN,
    PURPLE,
    RED,
    YELLOW,
    Thing,
    at_patches,
    gallery_of,
    is_colour,
    moving,
    walk_of,
)

from lastseen.errors import TrainError
from lastseen.train.pairs import (
    IGNORED,
    QUERY_PX,
    QUERY_SIDE,
    RIGHT,
    ROLL_RAD,
    SIDE,
    SIZE_PX,
    THING_PX,
    WRONG,
    ZOOM,
    PhotoPairs,
    WalkPairs,
    photometric_jitter,
    place_for,
)
from lastseen_synth.assets import Credit, Picture

pytestmark = pytest.mark.usefixtures("one_thread")

FRAMES = 20
FRAMES_A_GROUP = 8  # if nothing else is said
SIZE = (448, 336)
CREDIT = Credit(title="t", author="a", licence="CC0-1.0", source="s")


def rectangle(name, colour, start, step=(3, 2), **more):
    return Thing(name=name, colour=colour, boxes=moving(start, step, FRAMES), **more)


@pytest.fixture(scope="module")
def drawn():
    """Eight groups of pairs over three walks of six things that never cover each other."""
    walks = [
        walk_of(
            [
                rectangle("red", RED, (20, 30, 93, 101), portraits=1),
                rectangle("green", GREEN, (200, 170, 301, 239), portraits=1),
            ],
            size=SIZE,
        ),
        walk_of(
            [
                rectangle("blue", BLUE, (11, 13, 60, 110), step=(7, 1)),
                rectangle("yellow", YELLOW, (250, 190, 320, 231), step=(-4, 2)),
            ],
            size=(448, 252),
            seed=1,
        ),
        walk_of(
            [
                rectangle("purple", PURPLE, (150, 150, 390, 390), step=(0, 0), portraits=1),
                rectangle("cyan", CYAN, (20, 30, 51, 60), step=(3, 3)),
            ],
            size=(448, 448),
            seed=2,
        ),
    ]
    pairs = WalkPairs(gallery_of(*walks))
    return pairs.draw(8, np.random.default_rng(0))


COLOURS = {"red": RED, "green": GREEN, "blue": BLUE, "yellow": YELLOW, "purple": PURPLE, "cyan": CYAN}


def colour_asked_for(query, on_thing):
    """What most of the query's own patches show."""
    shown = at_patches(query)[on_thing]
    shares = {name: is_colour(shown, colour).float().mean().item() for name, colour in COLOURS.items()}
    best = max(shares, key=shares.get)
    assert shares[best] > 0.85  # a row of patches may lie on the thing's edge
    return COLOURS[best]


def test_pairs_have_the_shapes_they_promise(drawn):
    assert drawn.frames.shape == (8, FRAMES_A_GROUP, 3, SIZE_PX, SIZE_PX)
    assert drawn.queries.shape == (8, 2 * FRAMES_A_GROUP, 3, QUERY_PX, QUERY_PX)
    assert drawn.on_thing.shape == (8, 2 * FRAMES_A_GROUP, QUERY_SIDE, QUERY_SIDE)
    assert (SIZE_PX, QUERY_PX) == (14 * SIDE, 14 * QUERY_SIDE)
    assert drawn.labels.shape == (8, 2 * FRAMES_A_GROUP, FRAMES_A_GROUP, SIDE, SIDE)
    assert set(drawn.labels.unique().tolist()) == {RIGHT, WRONG, IGNORED}
    assert drawn.frames.min() >= 0 and drawn.frames.max() <= 1


def test_every_right_patch_shows_the_thing_that_the_query_shows_and_no_wrong_one_does(drawn):
    asked, found = set(), []
    for group in range(8):
        frames = at_patches(drawn.frames[group])
        for query, on_thing, labels in zip(drawn.queries[group], drawn.on_thing[group], drawn.labels[group]):
            assert on_thing.any()
            colour = colour_asked_for(query, on_thing)
            asked.add(colour)
            # Half of the middle's pixels may lie beyond an edge that goes through it.
            shows = is_colour(frames, colour, 0.5)
            assert shows[labels == RIGHT].all()
            assert not is_colour(frames, colour)[labels == WRONG].any()
            found.append((labels == RIGHT).any())
    assert np.mean(found) > 0.95  # a small thing may lie between the middles of patches
    assert asked == set(COLOURS.values())


def test_no_pixel_of_a_wrong_patch_is_the_things(drawn):
    """And patches that do not count are few: around the thing."""
    for group in range(2):
        frames = drawn.frames[group]
        for query, on_thing, labels in zip(drawn.queries[group], drawn.on_thing[group], drawn.labels[group]):
            pixels = is_colour(frames.movedim(1, -1), colour_asked_for(query, on_thing))
            touched = pixels.view(FRAMES_A_GROUP, SIDE, 14, SIDE, 14).any(4).any(2)
            assert not (touched & (labels == WRONG)).any()
            # Bounds of a rotated patch are wider than the patch, and a box may reach beyond the frame.
            beside = torch.nn.functional.max_pool2d(touched.float()[None], 9, 1, 4)[0] > 0
            assert beside[labels == IGNORED].all()


def test_things_that_look_the_same_are_right_in_every_frame_of_the_group():
    walks = [
        walk_of([rectangle(name, RED, start, group="twin 1")], size=SIZE, seed=seed)
        for seed, (name, start) in enumerate({"a": (20, 30, 90, 100), "b": (100, 90, 190, 180)}.items())
    ]
    drawn = WalkPairs(gallery_of(*walks)).draw(1, np.random.default_rng(0))
    shown = is_colour(at_patches(drawn.frames[0]), RED)
    assert shown.flatten(1).any(1).all()
    for labels in drawn.labels[0]:
        assert (labels[shown] != WRONG).all()
        assert (labels == RIGHT).flatten(1).any(1).all()


def test_a_frame_that_may_show_the_thing_nobody_knows_where_does_not_count():
    """Of what stands in a room twice there are no boxes, so its patches would be called wrong."""
    known = walk_of([rectangle("can", RED, (20, 30, 90, 100))], size=SIZE)
    blue = rectangle("jug", BLUE, (200, 170, 300, 240))
    unknown = walk_of([blue], size=SIZE, also_present=["can"], seed=1)
    without = walk_of([blue], size=SIZE, seed=2)
    counts = []
    for other in (unknown, without):
        drawn = WalkPairs(gallery_of(known, other)).draw(2, np.random.default_rng(0))
        for group in range(2):
            shows_blue = is_colour(at_patches(drawn.frames[group]), BLUE).flatten(1).any(1)
            assert 0 < shows_blue.sum() < FRAMES_A_GROUP
            for query, on_thing, labels in zip(
                drawn.queries[group], drawn.on_thing[group], drawn.labels[group]
            ):
                if colour_asked_for(query, on_thing) == RED:
                    counts.append((other is unknown, set(labels[shows_blue].unique().tolist())))
    assert set(map(str, counts)) == {str((True, {IGNORED})), str((False, {WRONG}))}


def test_a_thing_without_a_view_or_a_patch_is_not_asked_about():
    tiny = Thing(name="tiny", colour=RED, boxes=[(8, 8, 14, 14)] * FRAMES, portraits=1)
    big = rectangle("big", BLUE, (100, 100, 180, 170))
    unseen = Thing(name="unseen", colour=GREEN, boxes=[(300, 200, 325, 225)] * FRAMES)
    drawn = WalkPairs(gallery_of(walk_of([tiny, unseen, big], size=SIZE))).draw(1, np.random.default_rng(0))
    for query, on_thing in zip(drawn.queries[0], drawn.on_thing[0]):
        assert colour_asked_for(query, on_thing) == BLUE
    with pytest.raises(TrainError, match="seen well enough to learn from"):
        WalkPairs(gallery_of(walk_of([tiny], size=SIZE)))


def test_walk_pairs_depend_on_their_generator_alone():
    pairs = WalkPairs(gallery_of(walk_of([rectangle("red", RED, (20, 30, 93, 101))], size=SIZE)))
    one, again, other = (pairs.draw(1, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert torch.equal(one.frames, again.frames)
    assert torch.equal(one.labels, again.labels)
    assert not torch.equal(one.frames, other.frames)


# --- Photographs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_photos():
    """Photographs whose red tells x, whose green tells y and whose blue tells which one it is."""
    ramp = np.linspace(0.1, 1, 256) * 255
    pictures = []
    for number in range(FRAMES_A_GROUP + 2):
        image = np.empty((256, 256, 3), np.uint8)
        image[..., 0], image[..., 1], image[..., 2] = ramp[None], ramp[:, None], 60 + 15 * number
        pictures.append(
            Picture(
                name=f"p{number}",
                kind="wallpaper",
                split="train",
                width=256,
                height=256,
                credit=CREDIT,
                loader=lambda image=image: image,
            )
        )
    return PhotoPairs(pictures, "cpu").draw(3, np.random.default_rng(0))


def where_and_which(pictures):
    """Positions [.., 2] in the photograph, and its number (below 0: beyond its border)."""
    colours = at_patches(pictures) * 255
    return (colours[..., :2] / 255 - 0.1) / 0.9, (colours[..., 2] - 60) / 15


def test_right_patches_show_the_region_that_the_query_shows_and_wrong_ones_do_not(of_photos):
    rights = 0
    for group in range(3):
        places, which = where_and_which(of_photos.frames[group])
        for query, on_thing, labels in zip(
            of_photos.queries[group], of_photos.on_thing[group], of_photos.labels[group]
        ):
            region, photo = where_and_which(query)
            assert on_thing.sum() > 2  # it may be shown small
            (number,) = photo[on_thing].round().unique().tolist()
            low, high = region[on_thing].amin(0), region[on_thing].amax(0)
            own = (which - number).abs() < 0.02  # a patch on the photograph's border is darker than that
            right = labels == RIGHT
            assert ((which - number).abs() < 0.5)[right].all()
            slack = (
                0.01 + (high - low) / on_thing.sum().sqrt()
            )  # the query's patches do not reach the very edge
            assert (places[right] > low - slack).all() and (places[right] < high + slack).all()
            inside = (places > low + 0.01).all(-1) & (places < high - 0.01).all(-1)
            wrong = own & (labels == WRONG)
            assert not inside[wrong].any()
            assert (labels[which.flatten(1).amax(1) - number > 0.5] == WRONG).all()  # other photographs
            # What is neither is a rim.
            rim = places[(labels == IGNORED) & own]
            reach = 0.2 * (high - low) + 0.02 + slack
            assert (rim > low - reach).all() and (rim < high + reach).all()
            rights += bool(right.any())
    assert rights > 40  # of 48: the frame may not show the region


def test_each_photograph_is_once_in_a_group(of_photos):
    for group in range(3):
        _, which = where_and_which(of_photos.frames[group])
        assert len({round(w[10:22, 10:22].median().item()) for w in which}) == FRAMES_A_GROUP


def test_too_few_photographs_are_one_clear_line():
    with pytest.raises(TrainError, match="0 photographs are too few, 8 are needed"):
        PhotoPairs([], "cpu").draw(1, np.random.default_rng(0))


# --- How things look and where they are brought ---------------------------------------------------------


def test_varied_pictures_stay_pictures_and_depend_on_their_generator_alone():
    pictures = torch.rand(6, 3, 56, 70, generator=torch.Generator().manual_seed(0))
    pictures[0], pictures[1] = 0, 1
    for seed in range(5):
        one, again = (photometric_jitter(pictures, torch.Generator().manual_seed(seed)) for _ in range(2))
        assert one.shape == pictures.shape
        assert one.isfinite().all()
        assert one.min() >= 0 and one.max() <= 1
        assert torch.equal(one, again)
        assert not torch.equal(one, photometric_jitter(pictures, torch.Generator().manual_seed(seed + 100)))
        assert (one - pictures).abs().flatten(1).mean(1).max() > 0.02
    alike = photometric_jitter(pictures[3:4].expand(6, -1, -1, -1), torch.Generator().manual_seed(0))
    assert len({round(p.mean().item(), 5) for p in alike}) == 6  # each for itself


def test_a_thing_is_brought_to_a_size_and_no_emptiness_is_shown_without_need():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sides = np.exp(rng.uniform(np.log(8), np.log(400), 2))
        corner = rng.uniform(0, SIZE_PX - sides)
        box = np.concatenate([corner, corner + sides])
        side = math.sqrt(sides.prod())
        theta = place_for(box, rng)
        linear = theta[:, :2]
        zoom = 1 / math.sqrt(abs(np.linalg.det(linear)))
        assert linear.T @ linear == pytest.approx(np.eye(2) / zoom**2)  # it is not stretched
        assert abs(math.atan2(theta[0, 1], theta[1, 1])) <= ROLL_RAD + 1e-9
        assert ZOOM[0] - 1e-9 <= zoom <= ZOOM[1] + 1e-9
        if ZOOM[0] + 1e-6 < zoom < ZOOM[1] - 1e-6:
            assert THING_PX[0] - 1e-6 <= side * zoom <= THING_PX[1] + 1e-6
        elif zoom > 1:
            assert side * zoom <= THING_PX[1] + 1e-6
        else:
            assert side * zoom >= THING_PX[0] - 1e-6
        # The corners of the new picture in the old one: inside it, or (zoomed out) all around it.
        edges = np.stack([theta[:, 2] - 1 / zoom, theta[:, 2] + 1 / zoom])
        rolled = theta[0, 1] != 0
        if zoom >= 1:
            assert rolled or (np.abs(edges) <= 1 + 1e-9).all()
        else:
            assert rolled or ((edges[0] <= -1 + 1e-9).all() and (edges[1] >= 1 - 1e-9).all())
        # The thing's middle is in the new picture.
        middle = (box[:2] + box[2:]) / SIZE_PX - 1
        assert (np.abs(np.linalg.solve(linear, middle - theta[:, 2])) <= 1 + 1e-9).all()


def test_things_come_in_all_sizes_places_and_mirrored():
    rng = np.random.default_rng(0)
    places = np.array([place_for(np.array([200.0, 180, 260, 240]), rng) for _ in range(300)])
    mirrored = (places[:, 0, 0] < 0).mean()
    assert 0.4 < mirrored < 0.6
    assert 0.25 < (places[:, 0, 1] != 0).mean() < 0.45  # rolled
    sizes = 60 / np.sqrt(np.abs(np.linalg.det(places[:, :, :2])))
    assert np.quantile(sizes, 0.1) < 50
    assert np.quantile(sizes, 0.9) > 150
    middle = np.array([230, 210]) / (SIZE_PX / 2) - 1
    shown = (middle - places[:, :, 2]) / np.stack([places[:, 0, 0], places[:, 1, 1]], 1)
    assert shown.std(0).min() > 0.25
