from dataclasses import replace

import numpy as np
import pytest
import torch

from lastseen.errors import SynthError
from lastseen_synth.assets import Asset, AssetLibrary, Credit, Picture
from lastseen_synth.backdrop import Backdrop
from lastseen_synth.camera import HeadCamera
from lastseen_synth.compositing import composite, full_extent_pixels
from lastseen_synth.geometry import look_at
from lastseen_synth.lens import Lens
from lastseen_synth.meshes import Material, Mesh
from lastseen_synth.object_pool import Item, ObjectPool, Prop
from lastseen_synth.photo_frames import render_frames
from lastseen_synth.photo_scene import GroupPlace, PhotoScene, contact_shadow, place_group
from lastseen_synth.photo_walks import LEAST_PX, LEAST_SHARE, PhotoWalks
from lastseen_synth.shadow import Lights
from lastseen_synth.shutter import Shutter
from lastseen_synth.texture import colour_texture

pytestmark = pytest.mark.usefixtures("one_thread")

CREDIT = Credit(title="t", author="a", licence="CC0-1.0", source="s")
CLEAN = HeadCamera(lens=Lens(horizontal_fov_deg=80.0))
SIZE = (96, 72)


@pytest.fixture(scope="module")
def library():
    """Cubes in families of four, in both splits, and pictures of noise."""
    rng = np.random.default_rng(0)
    assets, pictures = [], []
    for i in range(16):
        made = asset(
            f"cube{i}", rng.integers(40, 255, 3).tolist(), rng.uniform(0.08, 0.3), family=f"f{i // 4}"
        )
        assets.append(replace(made, split="train" if i < 8 else "val"))
        image = rng.integers(0, 255, (12, 16, 3), dtype=np.uint8).repeat(6, 0).repeat(6, 1)
        kind = "generated" if i % 2 else "wallpaper"
        pictures.append(replace(picture(f"p{i}", image, kind), split="train" if i < 8 else "val"))
    return AssetLibrary(assets=tuple(assets), pictures=tuple(pictures))


def cube(side_m):
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (0, 1)]) * side_m
    faces = [
        [0, 1, 3],
        [0, 3, 2],
        [4, 6, 7],
        [4, 7, 5],
        [0, 4, 5],
        [0, 5, 1],
        [2, 3, 7],
        [2, 7, 6],
        [0, 2, 6],
    ]
    faces += [[0, 6, 4], [1, 5, 7], [1, 7, 3]]
    middle = np.array([0, 0, side_m / 2])
    return Mesh(
        positions_m=torch.from_numpy(corners),
        normals=torch.nn.functional.normalize(torch.from_numpy(corners - middle), dim=1),
        uv=torch.zeros(8, 2, dtype=torch.float64),
        triangles=torch.tensor(faces),
    )


def asset(name, colour, side_m=0.2, kind="object", family=None, twin=None):
    return Asset(
        name=name,
        kind=kind,
        type="thing",
        split="train",
        family=family or name,
        twin=twin,
        lo_m=(-side_m / 2, -side_m / 2, 0.0),
        hi_m=(side_m / 2, side_m / 2, side_m),
        credit=CREDIT,
        loader=lambda: (cube(side_m), (Material(texture=colour_texture(colour)),)),
    )


def picture(name, image, kind="wallpaper"):
    height, width = image.shape[:2]
    return Picture(
        name=name, kind=kind, split="train", width=width, height=height, credit=CREDIT, loader=lambda: image
    )


def grey(height=32, width=64, level=90):
    return np.full((height, width, 3), level, np.uint8)


def prop(name="red", colour=(200, 30, 30), side_m=0.2, spin_rad=0.0):
    item = Item.of(asset(name, colour, side_m))
    mesh, materials = item.source.load()
    return Prop(item=item, mesh=mesh, materials=materials, spin_rad=spin_rad, cutout=None)


def scene_of(image=None, eye_m=1.6):
    sphere = torch.from_numpy(grey() if image is None else image)
    backdrop = Backdrop.of(sphere, eye_m=eye_m, radius_m=8.0, focal_px=60.0)
    lights = Lights(
        lamps_m=torch.zeros(0, 3),
        lamp_colours=torch.zeros(0, 3),
        sky_colour=torch.ones(3),
        ground_colour=torch.ones(3),
    )
    return PhotoScene(backdrop=backdrop, lights=lights)


def looking(*targets, eye=(0.0, 0.0, 1.6)):
    """A pose per second: at these points."""
    aims = torch.tensor(np.array(targets), dtype=torch.float64)
    poses = look_at(torch.tensor(eye, dtype=torch.float64).expand_as(aims), aims)
    return lambda times: poses[torch.as_tensor(times).round().long().clamp(0, len(poses) - 1)]


def filmed(photo_scene, pose_at, frames, camera=CLEAN, size=SIZE):
    return render_frames(
        photo_scene, camera, pose_at, np.arange(frames, dtype=float), size, torch.Generator("cpu")
    )


def bounds(mask):
    rows, columns = np.nonzero(mask)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_the_box_is_the_bounds_of_the_visible_pixels_of_the_thing():
    photo_scene = scene_of()
    spot = GroupPlace(yaw_rad=0.0, distance_m=1.0, kind="air")
    rng = np.random.default_rng(3)
    placed = place_group(
        photo_scene,
        ObjectPool(small_library()),
        spot,
        [prop("a", (30, 30, 200)), prop(), prop("b", (0, 200, 0))],
        rng,
    )
    photo_scene.thing, middle = placed[1]
    pose_at = looking(tuple(middle), tuple(middle + np.array([0, 0.3, 0.1])))
    seen = filmed(photo_scene, pose_at, 2)
    cameras = CLEAN.lens.pinhole(*SIZE).cameras(pose_at(np.arange(2)))
    alpha = composite(photo_scene, photo_scene.scene("cpu"), cameras, softness_px=0.6).thing
    for frame in range(2):
        mask = alpha[frame].numpy() > 0.5
        red = seen.images[frame].numpy().astype(int) @ [1, -1, -1] > 40
        assert seen.boxes_px[frame].tolist() == bounds(mask)
        assert int(seen.pixels[frame]) == mask.sum()
        assert (red & ~mask).sum() == 0 or np.abs(np.array(bounds(red)) - bounds(mask)).max() <= 1


def small_library():
    return AssetLibrary(
        assets=(asset("x", (9, 9, 9)), asset("y", (99, 99, 99))), pictures=(picture("wall", grey()),)
    )


def test_the_box_moves_with_the_camera_as_predicted():
    photo_scene = scene_of()
    thing = prop(side_m=0.25, spin_rad=0.4)
    photo_scene.thing = photo_scene.put(thing, np.array([1.2, 0.1, 1.3]), 0.0)
    bent = replace(CLEAN, lens=Lens(horizontal_fov_deg=85.0, bend=0.6))
    pose_at = looking((1.2, 0.1, 1.4), (1.2, -0.3, 1.5), (1.2, 0.4, 1.2))
    scene = photo_scene.scene("cpu")
    vertices = scene.geometry.positions_m.T
    for camera in (CLEAN, bent):
        seen = filmed(photo_scene, pose_at, 3, camera)
        for frame, pose in enumerate(pose_at(np.arange(3))):
            points = vertices @ pose[:3, :3].T + pose[:3, 3]
            ends = camera.lens.project(points, *SIZE)
            expected = [*ends.amin(0).tolist(), *ends.amax(0).tolist()]
            assert seen.boxes_px[frame].tolist() == pytest.approx(expected, abs=1.3)
        assert (seen.share > 0.9).all()


def test_what_stands_before_the_thing_hides_it():
    shares = []
    for aside in (0.5, 0.11, 0.0):
        photo_scene = scene_of()
        photo_scene.thing = photo_scene.put(prop(side_m=0.15), np.array([1.2, 0.0, 1.5]), 0.0)
        photo_scene.put(prop("front", (0, 200, 0), side_m=0.2), np.array([0.8, aside, 1.48]), 0.0)
        seen = filmed(photo_scene, looking((1.2, 0.0, 1.6)), 1)
        shares.append(float(seen.share[0]))
    assert shares[0] > 0.8 and 0.1 < shares[1] < 0.9
    assert shares[2] == 0 and torch.isnan(seen.boxes_px).all() and int(seen.pixels[0]) == 0


def test_what_the_frame_cuts_off_counts_as_hidden():
    photo_scene = scene_of()
    photo_scene.thing = photo_scene.put(prop(side_m=0.2), np.array([1.0, 0.0, 1.5]), 0.0)
    edge = float(np.tan(np.deg2rad(40.0)))
    turned = (1.0, edge, 1.6)  # the left edge of the picture goes through the thing
    seen = filmed(photo_scene, looking((1.0, 0.0, 1.6), turned), 2)
    assert float(seen.share[0]) > 0.9 and 0.3 < float(seen.share[1]) < 0.7
    assert float(seen.boxes_px[1, 2]) == SIZE[0]
    scene, cameras = photo_scene.scene("cpu"), CLEAN.lens.pinhole(*SIZE).cameras(looking(turned)([0]))
    assert int(full_extent_pixels(scene, cameras, photo_scene.thing)[0]) > int(seen.pixels[1])


def test_what_is_carried_stays_before_the_eyes_while_the_head_turns():
    photo_scene = scene_of()
    ways = np.array([[0.0, 0.0, 0.8], [0.0, 0.0, 0.8]])
    photo_scene.thing = photo_scene.carry(prop(), np.array([0.0, 9.0]), ways, sway_rad=0.0)
    seen = filmed(photo_scene, looking((1.0, 0, 1.6), (0, 1.0, 1.0)), 2)
    for box in seen.boxes_px.tolist():
        assert (box[0] + box[2]) / 2 == pytest.approx(SIZE[0] / 2, abs=2)
        assert (box[1] + box[3]) / 2 == pytest.approx(SIZE[1] / 2, abs=2)


def test_shade_is_darkest_where_a_thing_touches_the_ground():
    photo_scene = scene_of()
    photo_scene.rest(prop(), np.array([1.0, 0.0, 0.0]), 0.0)
    points = torch.tensor([[1.0, 0.0, 0.0], [1.12, 0.0, 0.0], [2.0, 0.0, 0.0], [1.0, 0.0, 0.5]])
    under, beside, far, above = contact_shadow(photo_scene.contacts, points.T[None, :, :, None])[
        0, 0, :, 0
    ].tolist()
    assert under < 0.5 < beside < 1 and far == pytest.approx(1) and above == pytest.approx(1)


def test_clips_say_what_they_show(library):
    walks = PhotoWalks(library.split("train"), size=SIZE, frames=8, fps=2.0)
    for seed in range(3):
        clip = walks.draw(np.random.default_rng(seed))
        assert clip.frames.shape == (8, SIZE[1], SIZE[0], 3) and clip.frames.dtype == torch.uint8
        assert clip.visible.any()
        assert torch.isnan(clip.boxes_px).all(1).tolist() == (~clip.visible).tolist()
        boxes = clip.boxes_px[clip.visible]
        assert (boxes[:, :2] >= 0).all() and (boxes[:, 2:] <= torch.tensor(SIZE)).all()
        sides = boxes[:, 2:] - boxes[:, :2]
        assert (sides.prod(1) >= LEAST_PX).all()
        box = clip.query_box
        assert 0 <= box.x1 < box.x2 <= SIZE[0] and 0 <= box.y1 < box.y2 <= SIZE[1]
        assert max(box.width, box.height) >= 0.14 * min(SIZE)
        differences = (clip.frames.int() - clip.query.int()).abs().float().mean((1, 2, 3))
        assert (differences > 4).all()  # the query is no frame of the clip
    assert LEAST_SHARE == 0.25


def test_the_same_seed_gives_the_same_clip_whatever_is_made_beside_it(library):
    walks = PhotoWalks(library.split("train"), size=(64, 64), frames=4)
    alone = walks.draw(np.random.default_rng(5))
    walks.draw(np.random.default_rng(4), present=False)
    again = walks.draw(np.random.default_rng(5))
    assert alone.thing == again.thing and alone.query_box == again.query_box
    assert torch.equal(alone.frames, again.frames) and torch.equal(alone.query, again.query)
    assert torch.equal(alone.boxes_px.nan_to_num(-1), again.boxes_px.nan_to_num(-1))


def test_it_makes_walks_of_what_is_drawn_at_run_time(val_library):
    clip = PhotoWalks(val_library, size=(64, 64), frames=4).draw(np.random.default_rng(0))
    assert clip.visible.any()


@pytest.fixture
def staged(monkeypatch):
    """Per filmed stage, the props put into it."""
    photo_scenes = {}
    put, carry = PhotoScene.put, PhotoScene.carry

    def noting(method):
        def call(self, prop, *args, **kwargs):
            photo_scenes.setdefault(id(self), (self, []))[1].append(prop)
            return method(self, prop, *args, **kwargs)

        return call

    monkeypatch.setattr(PhotoScene, "put", noting(put))
    monkeypatch.setattr(PhotoScene, "carry", noting(carry))
    return photo_scenes


def test_a_clip_without_the_thing_has_nothing_like_its_twins_in_it(staged):
    assets = [asset(f"a{i}", (200, 10 * i, 30), family="a", twin=i // 2) for i in range(4)]
    library = AssetLibrary(assets=(*assets, asset("z", (30, 30, 200))), pictures=(picture("w", grey()),))
    walks = PhotoWalks(library, size=(48, 48), frames=3)
    twins = {a.name: Item.of(a).twins for a in library.assets}
    for seed in range(6):
        staged.clear()
        present = seed % 2 == 0
        clip = walks.draw(np.random.default_rng(seed), present=present)
        assert bool(clip.visible.any()) == present
        assert (clip.thing in clip.scene) == present
        assert len(clip.scene) >= 2  # something stands beside it, or in its place
        query_stage, clip_stage = list(staged.values())[-1], list(staged.values())[-2]
        names = [p.item.name for p in clip_stage[1]]
        assert names.count(clip.thing) == int(present)
        assert [n for n in names if n != clip.thing and twins[n] == twins[clip.thing]] == []
        if not present:
            assert clip_stage[0].thing is None and torch.isnan(clip.boxes_px).all()
        assert [p.item.name for p in query_stage[1]].count(clip.thing) == 1


def test_the_query_shows_another_side_in_another_place(staged, library):
    walks = PhotoWalks(
        AssetLibrary(assets=library.kind("object"), pictures=library.pictures), size=(48, 48), frames=3
    )
    for seed in range(3):
        staged.clear()
        thing = walks.draw(np.random.default_rng(seed)).thing
        (there, before), (here, after) = list(staged.values())[-2:]
        spins = [next(p.spin_rad for p in props if p.item.name == thing) for props in (before, after)]
        turn = abs(spins[0] - spins[1])
        assert 0 < turn < np.deg2rad(101)
        assert not torch.equal(there.backdrop.sphere, here.backdrop.sphere)
        assert not torch.equal(there.lights.sky_colour, here.lights.sky_colour)


def test_photographs_of_one_product_are_twins_and_of_one_sort_relatives():
    names = ["train/Fruit/Apple/Gala/1.jpg", "train/Fruit/Apple/Gala/2.jpg", "train/Fruit/Apple/Fuji/1.jpg"]
    image = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    library = AssetLibrary(pictures=tuple(picture(n, image, "grocery") for n in names))
    pool = ObjectPool(library)
    first, second, third = pool.cutouts
    rng = np.random.default_rng(0)
    assert first.twins == second.twins != third.twins
    assert {pool.lookalike(first, rng).name for _ in range(5)} == {third.name}
    assert {p.name for p in pool.flat_pictures(first, 9, rng)} == {third.name}
    prop = pool.prop(first, scene_of().bright, rng)
    assert prop.cutout is not None and max(prop.size_m) <= 0.36


def watched(item, loaded):
    def load():
        loaded.add((item.name, item.split))
        return item.loader()

    return replace(item, loader=load)


def test_nothing_of_another_split_is_ever_loaded(library):
    loaded = set()
    whole = AssetLibrary(
        assets=tuple(watched(a, loaded) for a in library.assets),
        surfaces=tuple(watched(s, loaded) for s in library.surfaces),
        pictures=tuple(watched(p, loaded) for p in library.pictures),
    )
    walks = PhotoWalks(whole.split("val"), size=(48, 48), frames=3)
    for seed in range(2):
        walks.draw(np.random.default_rng(seed))
    assert loaded and {split for _, split in loaded} == {"val"}


@pytest.mark.parametrize("what", ["panoramas and objects", "photographs only", "panoramas and photographs"])
def test_it_makes_do_with_what_there_is(what, library):
    rng = np.random.default_rng(0)
    pano = picture("p", rng.integers(0, 255, (64, 128, 3), dtype=np.uint8), "pano")
    parts = {
        "panoramas and objects": AssetLibrary(assets=library.kind("object"), pictures=(pano,)),
        "photographs only": AssetLibrary(pictures=library.pictures),
        "panoramas and photographs": AssetLibrary(pictures=(pano, *library.pictures)),
    }
    clip = PhotoWalks(parts[what], size=(48, 48), frames=3).draw(np.random.default_rng(1))
    assert clip.visible.any()


def test_it_says_in_one_line_what_is_missing():
    things = (asset("x", (9, 9, 9)), asset("y", (99, 99, 99)))
    with pytest.raises(SynthError, match=r"^walks over photographs need pictures.*$"):
        PhotoWalks(AssetLibrary(assets=things))
    with pytest.raises(SynthError, match=r"^nothing to look for.*$"):
        PhotoWalks(AssetLibrary(pictures=(picture("p", grey(), "pano"),)))
    with pytest.raises(SynthError, match=r"^all things of the library look the same.*$"):
        PhotoWalks(AssetLibrary(assets=things[:1], pictures=(picture("p", grey(), "pano"),)))


def test_a_fast_turn_blurs_the_picture_but_not_the_answer():
    image = np.random.default_rng(0).integers(0, 255, (64, 128, 3), dtype=np.uint8)
    photo_scene = scene_of(image)
    photo_scene.thing = photo_scene.put(prop(), np.array([1.2, 0.0, 1.5]), 0.0)

    def turning(times):
        angles = 3.0 * torch.as_tensor(times, dtype=torch.float64)
        points = torch.stack([angles.cos(), angles.sin(), torch.full_like(angles, 1.6)], 1)
        return look_at(torch.tensor([0.0, 0.0, 1.6], dtype=torch.float64).expand_as(points), points)

    sharp = filmed(photo_scene, turning, 1)
    blurred = filmed(photo_scene, turning, 1, replace(CLEAN, shutter=Shutter(exposure_s=0.03)))
    detail = [s.images.float().diff(dim=2).abs().mean() for s in (sharp, blurred)]
    assert detail[1] < 0.75 * detail[0]
    assert (sharp.boxes_px - blurred.boxes_px).abs().max() <= 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_the_same_answers(library):
    clips = [
        PhotoWalks(library, size=SIZE, frames=6, device=d).draw(np.random.default_rng(2))
        for d in ("cpu", "cuda")
    ]
    assert clips[0].thing == clips[1].thing and clips[1].frames.is_cuda
    boxes = [clip.boxes_px.nan_to_num(-9).cpu() for clip in clips]
    assert (boxes[0] - boxes[1]).abs().max() <= 1
