"""Photo walks: a virtual head camera in a panorama or photo collage, with objects composited into it.

    walk = PhotoWalks(open_library("train")).draw(np.random.default_rng(0))

The photographs give real texture and light; meshes and cut-outs of other photographs are rendered into them,
so that every box is exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Box
from lastseen.errors import SynthError
from lastseen_synth.assets import AssetLibrary, Picture
from lastseen_synth.backdrop import Backdrop, collage
from lastseen_synth.camera import HeadCamera
from lastseen_synth.cutouts import Cutout, matte_inside
from lastseen_synth.geometry import look_at
from lastseen_synth.itinerary import Visit
from lastseen_synth.lens import Lens
from lastseen_synth.object_pool import Item, ObjectPool, Prop
from lastseen_synth.photo_frames import render_frames
from lastseen_synth.photo_scene import GroupPlace, PhotoScene, place_group
from lastseen_synth.walk import walk

TRIES = 8
SHAPE_SHARE = 0.6  # of objects that are meshes; the others are cut out of photographs
PANORAMA_SHARE = 0.5  # of backdrops
ALIKE_SHARE = 0.5  # of scenes with look-alikes beside the thing
HIDDEN_SHARE = 0.3  # of scenes with an object that occludes the thing
CARRIED_SHARE = 0.15  # of scenes where the thing is carried; and, independently, another object
PASSING_SHARE = 0.12  # of scenes where an object passes in front of the camera
MEDIAN_SIZE_PX, SIZES_PX = 58.0, (24.0, 270.0)  # on pictures of 448
LEAST_CONTRAST = 15.0  # of a cut-out that is queried
PLAIN_CANDIDATES = 6  # cut-outs of which the least textured is taken
REGION_SIDES = (0.4, 0.9)  # of a photograph's sides: the part that a region is cut out of
LEAST_SHARE, LEAST_PX = 0.25, 40  # visible share and pixels of a thing that counts as visible


@dataclass(frozen=True, kw_only=True, eq=False)
class PhotoWalk:
    """T frames with the boxes of one object, on one device.

    | frames    | uint8 [T, H, W, 3]                                             |
    | boxes_px  | float32 [T, 4] x1 y1 x2 y2, nan where the thing is not visible |
    | visible   | bool [T]                                                       |
    | query     | uint8 [h, w, 3], another picture of the thing, at `query_box`  |
    | thing     | its name                                                       |
    | region    | of its photograph, if not the usual one: "@plain", "@region-7" |
    | scene     | names of all that may be seen in it, where the generator knows |
    """

    frames: Tensor
    boxes_px: Tensor
    visible: Tensor
    query: Tensor
    query_box: Box
    thing: str
    region: str = ""
    scene: frozenset[str] = frozenset()


class PhotoWalks:
    """Draws walks from the photographs and objects of a library. `size`: width and height in pixels;
    `plain_share`: of queried cut-outs, chosen for little texture; `region_seed`: queried cut-outs are regions
    drawn with it, one of each photograph, instead of those around its middle."""

    def __init__(
        self,
        library: AssetLibrary,
        *,
        size: tuple[int, int] = (448, 448),
        frames: int = 30,
        fps: float = 5.0,
        plain_share: float = 0.0,
        region_seed: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.pool = ObjectPool(library)
        self.size, self.device = size, torch.device(device)
        self.plain_share, self.region_seed = plain_share, region_seed
        self.times_s = np.arange(frames) / fps
        self.duration_s = frames / fps

    def draw(self, rng: np.random.Generator, *, present: bool = True) -> PhotoWalk:
        """A walk that shows the thing at some time or, if not `present`, never, but a look-alike of it."""
        for _ in range(TRIES):
            found = self._try_walk(rng, present)
            if found is not None:
                return found
        raise SynthError(f"{TRIES} scenes in a row showed nothing to ask for: check the library's objects")

    def _try_walk(self, rng: np.random.Generator, present: bool) -> PhotoWalk | None:
        item, plain = self.pool.thing(rng, SHAPE_SHARE), None
        if self.plain_share and isinstance(item.source, Picture) and rng.random() < self.plain_share:
            item, plain = self._plain_cutout(rng) or (item, None)
        region = None if plain is not None else self._region(item)
        photo_scene = self._empty_scene(item, rng)
        camera = self._camera(photo_scene, rng)
        thing = self.pool.prop(item, photo_scene.bright, rng, cutout=plain or region)
        if plain is None and thing.cutout and thing.cutout.contrast < LEAST_CONTRAST:
            return None
        self._populate(photo_scene, camera.lens.focal_px(self.size[0]), thing, rng, present=present)
        path = walk(
            _Disc(radius_m=float(np.clip(0.35 * photo_scene.nearest_m, 0.05, 0.5))),
            self._visits(photo_scene, camera.lens, rng),
            self.duration_s,
            rng,
            eye_height_m=photo_scene.backdrop.eye_m,
            points_of_interest_m=photo_scene.points_m,
        )
        seen = render_frames(photo_scene, camera, path.at, self.times_s, self.size, self._generator(rng))
        visible = (seen.pixels >= LEAST_PX) & (seen.share >= LEAST_SHARE)
        query = self._query(thing, rng)
        if query is None or (present and not bool(visible.any())):
            return None
        return PhotoWalk(
            frames=seen.images,
            boxes_px=seen.boxes_px.where(visible[:, None], torch.nan),
            visible=visible,
            query=query[0],
            query_box=query[1],
            thing=item.name,
            region=self._region_name(plain, region),
            scene=frozenset(photo_scene.names),
        )

    def _region(self, item: Item) -> Cutout | None:
        """A cut-out from anywhere in the photograph; None for a mesh, and where the picture has a matte."""
        if self.region_seed is None or not isinstance(item.source, Picture):
            return None
        picture = self.pool.image(item.source)
        if matte_inside(picture) is not None:
            return None
        # By name, so that a seed's walks with one photograph show one region of it.
        name = int.from_bytes(hashlib.sha256(item.name.encode()).digest()[:7], "big")
        rng = np.random.default_rng([self.region_seed, name])
        height, width = picture.shape[:2]
        rows, columns = (np.array([height, width]) * rng.uniform(*REGION_SIDES)).astype(int).clip(8)
        top, left = int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1))
        part = np.ascontiguousarray(picture[top : top + rows, left : left + columns])
        return Cutout.draw(part, rng)

    def _region_name(self, plain: Cutout | None, region: Cutout | None) -> str:
        if plain is not None:
            return "@plain" if matte_inside(plain.picture) is None else ""
        return "" if region is None else f"@region-{self.region_seed}"

    def _plain_cutout(self, rng: np.random.Generator) -> tuple[Item, Cutout] | None:
        """The least textured of some cut-outs, each of another photograph, with a distinct edge."""
        found: list[tuple[float, Item, Cutout]] = []
        for _ in range(PLAIN_CANDIDATES):
            item = self.pool.thing(rng, shape_share=0.0)
            assert isinstance(item.source, Picture)
            # By name, so that walks with one photograph show one region of it.
            seed = int.from_bytes(hashlib.sha256(item.name.encode()).digest()[:7], "big")
            cutout = Cutout.draw_plain(self.pool.image(item.source), seed)
            if cutout is not None:
                found.append((cutout.contrast, item, cutout))
        return min(found, key=lambda one: one[0])[1:] if found else None

    def _camera(self, photo_scene: PhotoScene, rng: np.random.Generator) -> HeadCamera:
        camera = HeadCamera.draw(rng, aspect=self.size[0] / self.size[1], light=photo_scene.bright.mean)
        # Photographs and composited objects are soft already: one ray per pixel is enough.
        return replace(
            camera,
            lens=replace(camera.lens, chromatic_aberration=0.0),
            sensor=replace(camera.sensor, softness_px=0.0),
        )

    def _generator(self, rng: np.random.Generator) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(int(rng.integers(2**31)))

    def _empty_scene(
        self, item: Item, rng: np.random.Generator, *, photographs: tuple[int, int] = (14, 30)
    ) -> PhotoScene:
        """A scene without objects: a panorama, or a collage of `photographs` (range) that do not show the
        item."""
        pool, sharpest_px = self.pool, 1.3 * max(self.size)  # upper bound of the focal length of any lens
        chosen: list[Picture] = []
        if pool.panoramas and (not pool.flats or rng.random() < PANORAMA_SHARE):
            image = pool.image(pool.panoramas[int(rng.integers(len(pool.panoramas)))])
            image = np.roll(image, int(rng.integers(image.shape[1])), 1)
            picture = torch.from_numpy(image[:, :: int(rng.choice([-1, 1]))].copy()).to(self.device)
        else:
            chosen = pool.flat_pictures(item, int(rng.integers(*photographs)), rng)
            if not chosen:
                raise SynthError("the only photographs are the thing's own: add pictures to the library")
            chosen.sort(key=lambda p: -p.width)  # the largest pictures cover most
            images, walls = [pool.image(p) for p in chosen], int(rng.integers(3, 6))
            picture = collage(images, walls, rng, focal_px=sharpest_px, device=self.device)
        eye_m, radius_m = rng.uniform([1.4, 6.0], [1.7, 12.0]).tolist()
        backdrop = Backdrop.of(picture, eye_m=eye_m, radius_m=radius_m, focal_px=sharpest_px)
        names = {picture.name for picture in chosen}
        return PhotoScene(backdrop=backdrop, lights=backdrop.lights(rng), names=names)

    def _props(
        self,
        thing: Prop,
        count: int,
        photo_scene: PhotoScene,
        rng: np.random.Generator,
        *,
        alike: bool = False,
    ) -> list[Prop]:
        """Props that are neither the thing nor its twins; the first two, if `alike`, of its family."""
        share = SHAPE_SHARE if rng.random() < 0.5 else float(thing.cutout is None)
        # Much larger props would keep the viewer away from the thing.
        largest_m = max(2.0 * float(max(thing.size_m)), 0.12)
        props = []
        for number in range(count):
            item = self.pool.lookalike(thing.item, rng) if alike and number < 2 else None
            item = item or self.pool.other(thing.item, rng, share, largest_m=largest_m)
            props.append(self.pool.prop(item, photo_scene.bright, rng))
            photo_scene.names.add(item.name)
        return props

    def _populate(
        self,
        photo_scene: PhotoScene,
        focal_px: float,
        thing: Prop,
        rng: np.random.Generator,
        *,
        present: bool,
    ) -> None:
        """Adds groups of props all around, one with the thing or, if not `present`, a substitute."""
        yaw = float(rng.uniform(-np.pi, np.pi))
        beside = self._props(
            thing, int(rng.integers(0, 5)), photo_scene, rng, alike=rng.random() < ALIKE_SHARE
        )
        lead = thing if present else self._other(thing, photo_scene, rng, alike=True)
        if rng.random() < CARRIED_SHARE:
            number = self._carry(photo_scene, focal_px, lead, rng)
        else:
            place = int(rng.integers(len(beside) + 1))
            group, beside = [*beside[:place], lead, *beside[place:]], []
            hidden = (place, self._other(thing, photo_scene, rng)) if rng.random() < HIDDEN_SHARE else None
            spot = self._spot(photo_scene, focal_px, lead, yaw, rng)
            number, photo_scene.thing_m = place_group(
                photo_scene, self.pool, spot, group, rng, hidden=hidden
            )[place]
        photo_scene.thing = number if present else None
        if present:
            photo_scene.names.add(thing.item.name)
        turns = yaw + np.linspace(0, 2 * np.pi, 5)[1:-1] + rng.normal(0, 0.25, 3)
        groups = [
            self._props(thing, int(n), photo_scene, rng) for n in rng.integers(1, 5, int(rng.integers(1, 4)))
        ]
        for props, turn in zip([beside, *groups], [yaw, *turns.tolist()]):
            if props:
                place_group(
                    photo_scene, self.pool, self._spot(photo_scene, focal_px, props[0], turn, rng), props, rng
                )
        if rng.random() < CARRIED_SHARE:
            self._carry(photo_scene, focal_px, self._other(thing, photo_scene, rng), rng)
        if rng.random() < PASSING_SHARE:
            self._let_pass(photo_scene, self._other(thing, photo_scene, rng), rng)

    def _other(
        self, thing: Prop, photo_scene: PhotoScene, rng: np.random.Generator, *, alike: bool = False
    ) -> Prop:
        return self._props(thing, 1, photo_scene, rng, alike=alike)[0]

    def _spot(
        self, photo_scene: PhotoScene, focal_px: float, lead: Prop, yaw: float, rng: np.random.Generator
    ) -> GroupPlace:
        """A place at which the lead has a size in pixels as in real video."""
        size_px = float(np.clip(MEDIAN_SIZE_PX * np.exp(0.75 * rng.standard_normal()), *SIZES_PX))
        size_px = max(size_px * min(self.size) / 448, 1.6 * LEAST_PX**0.5)
        return _spot(yaw, max(lead.size_m) * focal_px / size_px, photo_scene, rng)

    def _carry(self, photo_scene: PhotoScene, focal_px: float, prop: Prop, rng: np.random.Generator) -> int:
        """Holds the prop in front of the chest for a while: it comes up from below and goes down again."""
        lasts_s = float(np.clip(2.4 * np.exp(0.6 * rng.standard_normal()), 0.8, 12))
        start_s = float(rng.uniform(-0.5 * lasts_s, max(self.duration_s - 0.5 * lasts_s, 0.1)))
        size_px = float(np.exp(rng.uniform(np.log(0.15), np.log(0.5)))) * min(self.size)
        away_m = max(float(max(prop.size_m)) * focal_px / size_px, 0.25)
        hold = away_m * np.array([rng.normal(0, 0.25), rng.uniform(0.05, 0.6), 1.0])
        below = np.array([hold[0], 1.6 * away_m + 0.4, 0.1])
        times = np.array([-0.4, 0, lasts_s, lasts_s + 0.4]) + start_s
        ways = np.stack([below, hold, hold + rng.normal(0, 0.06, 3) * away_m, below])
        return photo_scene.carry(prop, times, ways, sway_rad=float(rng.normal(0, 0.3)))

    def _let_pass(self, photo_scene: PhotoScene, prop: Prop, rng: np.random.Generator) -> None:
        """Moves the prop past the camera from side to side, close enough to occlude much."""
        start_s, lasts_s = float(rng.uniform(0, self.duration_s)), float(rng.uniform(0.5, 1.6))
        near_m = 1.5 * float(max(prop.size_m)) + 0.2
        ways = near_m * np.array([[-1.6, 0.15, 0.7], [1.6, 0.15, 0.7]]) + rng.normal(0, 0.05, (2, 3))
        ways = ways[:: int(rng.choice([-1, 1]))]
        photo_scene.carry(
            prop, np.array([start_s, start_s + lasts_s]), ways, sway_rad=float(rng.normal(0, 0.3))
        )

    def _visits(self, photo_scene: PhotoScene, lens: Lens, rng: np.random.Generator) -> list[Visit]:
        """Times at which the head turns to the thing, a few seconds each, and not always to its centre."""
        if photo_scene.thing_m is None:
            return []
        eye = np.array([0, 0, photo_scene.backdrop.eye_m])
        away = photo_scene.thing_m - eye
        fov = np.deg2rad(lens.horizontal_fov_deg)
        visits: list[Visit] = []
        now_s = float(rng.uniform(-1.5, max(0.7 * min(self.duration_s, 8) - 0.3, 0)))
        while now_s < self.duration_s - 0.4 or not visits:
            lasts_s = float(np.clip(3.2 * np.exp(0.6 * rng.standard_normal()), 0.6, 12))
            yaw, pitch = (rng.normal(0, 0.15, 2) * fov).clip(-0.35 * fov, 0.35 * fov).tolist()
            x, y, z = (eye + _swung(away, yaw, pitch)).tolist()
            start_s, end_s = max(now_s, 0.0), now_s + lasts_s
            if end_s > start_s + 0.3:
                far_m = float(np.linalg.norm(away))
                visits.append(Visit(start_s=start_s, end_s=end_s, target_m=(x, y, z), distance_m=far_m))
            now_s = max(end_s, 0.0) + 1.5 + float(rng.exponential(4))
        return visits

    def _query(self, thing: Prop, rng: np.random.Generator) -> tuple[Tensor, Box] | None:
        """A query picture: the thing in another scene, from another side, larger than in most frames."""
        for _ in range(4):
            photo_scene = self._empty_scene(thing.item, rng, photographs=(8, 14))
            lens = Lens(horizontal_fov_deg=float(rng.uniform(45, 85)), vignetting=float(rng.uniform(0, 0.4)))
            shown = self.pool.again(thing, photo_scene.bright, rng)
            size_px = min(self.size) * float(np.exp(rng.uniform(np.log(0.2), np.log(0.65))))
            spot = _spot(0.0, max(shown.size_m) * lens.focal_px(self.size[0]) / size_px, photo_scene, rng)
            props = self._props(thing, int(rng.integers(0, 4)), photo_scene, rng)
            place = int(rng.integers(len(props) + 1))
            props.insert(place, shown)
            photo_scene.thing, middle_m = place_group(photo_scene, self.pool, spot, props, rng)[place]
            eye = np.array([0, 0, photo_scene.backdrop.eye_m])
            yaw, pitch = (rng.normal(0, 0.1, 2) * np.deg2rad(lens.horizontal_fov_deg)).tolist()
            aim = eye + _swung(middle_m - eye, yaw, pitch)
            camera = replace(self._camera(photo_scene, rng), lens=lens)
            still = render_frames(
                photo_scene, camera, _still(eye, aim), np.zeros(1), self.size, self._generator(rng)
            )
            x1, y1, x2, y2 = still.boxes_px[0].tolist()
            if float(still.share[0]) >= 0.6 and max(x2 - x1, y2 - y1) >= 0.14 * min(self.size):
                return still.images[0], Box(x1, y1, x2, y2)
        return None


def _still(eye_m: np.ndarray, aim_m: np.ndarray) -> Callable[[Tensor], Tensor]:
    """A camera that does not move, as `Walk.at`."""
    pose = look_at(torch.from_numpy(eye_m)[None], torch.from_numpy(aim_m)[None])
    return lambda times_s: pose.expand(len(times_s), 4, 4)


@dataclass(frozen=True, kw_only=True)
class _Disc:
    """Free floor around the viewpoint of the photograph."""

    radius_m: float
    cell_m: float = 0.1

    @property
    def origin_m(self) -> tuple[float, float]:
        return -self.radius_m, -self.radius_m

    @property
    def open(self) -> np.ndarray:
        side = max(2, int(np.ceil(2 * self.radius_m / self.cell_m)))
        return np.ones((side, side), bool)


def _spot(yaw: float, distance_m: float, photo_scene: PhotoScene, rng: np.random.Generator) -> GroupPlace:
    kinds = ["stand", "stand", "stand", "air"]
    if distance_m > 1.2:
        kinds += ["ground", "ground", "ground"]
    kind = kinds[int(rng.integers(len(kinds)))]
    if kind == "ground":
        # From distance along the line of sight to distance on the ground.
        distance_m = float(np.sqrt(max(distance_m**2 - photo_scene.backdrop.eye_m**2, 0.6)))
    return GroupPlace(yaw_rad=yaw, distance_m=float(np.clip(distance_m, 0.25, 5.0)), kind=kind)


def _swung(away_m: np.ndarray, yaw_rad: float, pitch_rad: float) -> np.ndarray:
    """A vector rotated by yaw and pitch."""
    yaw = np.arctan2(away_m[1], away_m[0]) + yaw_rad
    pitch = np.clip(np.arctan2(away_m[2], np.hypot(*away_m[:2])) + pitch_rad, -1.3, 1.0)
    unit = np.array([np.cos(pitch) * np.cos(yaw), np.cos(pitch) * np.sin(yaw), np.sin(pitch)])
    return np.linalg.norm(away_m) * unit
