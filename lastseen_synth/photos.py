"""The second generator: a head camera turns about in photographs, with things put into them.

    clip = PhotoWalks(Library.from_packs(folder).split("train")).clip(np.random.default_rng(0))

Panoramas and papered domes give real texture and light; scanned shapes and cut-outs of other photographs are
drawn into them by the renderer, so that every box is known to the pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Box
from lastseen.errors import SynthError
from lastseen_synth.assets import Library, Picture
from lastseen_synth.backdrop import Backdrop, collage
from lastseen_synth.camera import HeadCamera
from lastseen_synth.cast import Cast, Item, Prop
from lastseen_synth.film import film
from lastseen_synth.geometry import look_at
from lastseen_synth.lens import Lens
from lastseen_synth.stage import Spot, Stage, fill
from lastseen_synth.walk import Visit, walk

TRIES = 8
SHAPE_SHARE = 0.6  # of things that are shapes; the others are cut out of photographs
PANORAMA_SHARE = 0.5  # of backdrops
ALIKE_SHARE = 0.5  # of scenes with look-alikes beside the thing
HIDDEN_SHARE = 0.3  # of scenes with something before the thing
CARRIED_SHARE = 0.15  # of scenes where the thing is in the wearer's hand; and again for another
PASSING_SHARE = 0.12  # of scenes where something passes before the camera
MEDIAN_SIZE_PX, SIZES_PX = 58.0, (24.0, 270.0)  # on pictures of 448
LEAST_CONTRAST = 15.0  # of a cut-out to ask for
LEAST_SHARE, LEAST_PX = 0.25, 40  # of a thing, to count as visible


@dataclass(frozen=True, kw_only=True, eq=False)
class Clip:
    """T frames with the answer, on one device.

    | frames    | uint8 [T, H, W, 3]                                             |
    | boxes_px  | float32 [T, 4] x1 y1 x2 y2, nan where the thing is not visible |
    | visible   | bool [T]                                                       |
    | query     | uint8 [h, w, 3], another picture of the thing, at `query_box`  |
    | thing     | its name                                                       |
    | source    | the generator: "photo" or "room"                               |
    | scene     | names of all that may be seen in it, where the generator knows |
    """

    frames: Tensor
    boxes_px: Tensor
    visible: Tensor
    query: Tensor
    query_box: Box
    thing: str
    source: str
    scene: frozenset[str] = frozenset()


class PhotoWalks:
    """Clips over the photographs of a library, with its objects. `size` is width and height in pixels."""

    def __init__(
        self,
        library: Library,
        *,
        size: tuple[int, int] = (448, 448),
        frames: int = 30,
        fps: float = 5.0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.cast = Cast(library)
        self.size, self.device = size, torch.device(device)
        self.times_s = np.arange(frames) / fps
        self.duration_s = frames / fps

    def batch(self, rngs: Sequence[np.random.Generator], present: Sequence[bool] | None = None) -> list[Clip]:
        """One clip each. They share nothing, so that a clip does not depend on its neighbours."""
        wanted = [True] * len(rngs) if present is None else present
        return [self.clip(rng, present=here) for rng, here in zip(rngs, wanted, strict=True)]

    def clip(self, rng: np.random.Generator, *, present: bool = True) -> Clip:
        """With the thing in view at some time; or (not `present`) without it, but with its like."""
        for _ in range(TRIES):
            clip = self._try_clip(rng, present)
            if clip is not None:
                return clip
        raise SynthError(f"{TRIES} scenes in a row showed nothing to ask for: check the library's objects")

    def _try_clip(self, rng: np.random.Generator, present: bool) -> Clip | None:
        item = self.cast.thing(rng, SHAPE_SHARE)
        stage = self._stage(item, rng)
        camera = self._camera(stage, rng)
        thing = self.cast.prop(item, stage.bright, rng)
        if thing.cutout and thing.cutout.contrast < LEAST_CONTRAST:
            return None
        self._dress(stage, camera.lens.focal_px(self.size[0]), thing, rng, present=present)
        path = walk(
            _Disc(radius_m=float(np.clip(0.35 * stage.nearest_m, 0.05, 0.5))),
            self._visits(stage, camera.lens, rng),
            self.duration_s,
            rng,
            eye_height_m=stage.backdrop.eye_m,
            points_of_interest_m=stage.points_m,
        )
        seen = film(stage, camera, path.at, self.times_s, self.size, self._generator(rng))
        visible = (seen.pixels >= LEAST_PX) & (seen.share >= LEAST_SHARE)
        query = self._query(thing, rng)
        if query is None or (present and not bool(visible.any())):
            return None
        return Clip(
            frames=seen.images,
            boxes_px=seen.boxes_px.where(visible[:, None], torch.nan),
            visible=visible,
            query=query[0],
            query_box=query[1],
            thing=item.name,
            source="photo",
            scene=frozenset(stage.names),
        )

    def _camera(self, stage: Stage, rng: np.random.Generator) -> HeadCamera:
        camera = HeadCamera.draw(rng, aspect=self.size[0] / self.size[1], light=stage.bright.mean)
        # Photographs and what was drawn into them are soft already: one ray per pixel will do.
        return replace(
            camera,
            lens=replace(camera.lens, colour_spread=0.0),
            sensor=replace(camera.sensor, softness_px=0.0),
        )

    def _generator(self, rng: np.random.Generator) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(int(rng.integers(2**31)))

    def _stage(
        self, item: Item, rng: np.random.Generator, *, photographs: tuple[int, int] = (14, 30)
    ) -> Stage:
        """An empty one before a panorama or a collage of so many `photographs`, none of them of the item."""
        cast, sharpest_px = self.cast, 1.3 * max(self.size)  # the focal length beyond which no lens goes
        chosen: list[Picture] = []
        if cast.panoramas and (not cast.flats or rng.random() < PANORAMA_SHARE):
            image = cast.image(cast.panoramas[int(rng.integers(len(cast.panoramas)))])
            image = np.roll(image, int(rng.integers(image.shape[1])), 1)
            picture = torch.from_numpy(image[:, :: int(rng.choice([-1, 1]))].copy()).to(self.device)
        else:
            chosen = cast.flat_pictures(item, int(rng.integers(*photographs)), rng)
            if not chosen:
                raise SynthError("the only photographs are the thing's own: add pictures to the library")
            chosen.sort(key=lambda p: -p.width)  # the largest pictures are spread widest
            images, walls = [cast.image(p) for p in chosen], int(rng.integers(3, 6))
            picture = collage(images, walls, rng, focal_px=sharpest_px, device=self.device)
        eye_m, radius_m = rng.uniform([1.4, 6.0], [1.7, 12.0]).tolist()
        backdrop = Backdrop.of(picture, eye_m=eye_m, radius_m=radius_m, focal_px=sharpest_px)
        names = {picture.name for picture in chosen}
        return Stage(backdrop=backdrop, lights=backdrop.lights(rng), names=names)

    def _props(
        self, thing: Prop, count: int, stage: Stage, rng: np.random.Generator, *, alike: bool = False
    ) -> list[Prop]:
        """Things that are neither the thing nor its twins; the first two, if `alike`, of its family."""
        share = SHAPE_SHARE if rng.random() < 0.5 else float(thing.cutout is None)
        # What is much larger would keep the viewer away from the thing.
        largest_m = max(2.0 * float(max(thing.size_m)), 0.12)
        props = []
        for number in range(count):
            item = self.cast.lookalike(thing.item, rng) if alike and number < 2 else None
            item = item or self.cast.other(thing.item, rng, share, largest_m=largest_m)
            props.append(self.cast.prop(item, stage.bright, rng))
            stage.names.add(item.name)
        return props

    def _dress(
        self, stage: Stage, focal_px: float, thing: Prop, rng: np.random.Generator, *, present: bool
    ) -> None:
        """Groups all around, one with the thing or, if it is not `present`, with something in its place."""
        yaw = float(rng.uniform(-np.pi, np.pi))
        beside = self._props(thing, int(rng.integers(0, 5)), stage, rng, alike=rng.random() < ALIKE_SHARE)
        lead = thing if present else self._other(thing, stage, rng, alike=True)
        if rng.random() < CARRIED_SHARE:
            number = self._carry(stage, focal_px, lead, rng)
        else:
            place = int(rng.integers(len(beside) + 1))
            group, beside = [*beside[:place], lead, *beside[place:]], []
            hidden = (place, self._other(thing, stage, rng)) if rng.random() < HIDDEN_SHARE else None
            spot = self._spot(stage, focal_px, lead, yaw, rng)
            number, stage.thing_m = fill(stage, self.cast, spot, group, rng, hidden=hidden)[place]
        stage.thing = number if present else None
        if present:
            stage.names.add(thing.item.name)
        turns = yaw + np.linspace(0, 2 * np.pi, 5)[1:-1] + rng.normal(0, 0.25, 3)
        groups = [self._props(thing, int(n), stage, rng) for n in rng.integers(1, 5, int(rng.integers(1, 4)))]
        for props, turn in zip([beside, *groups], [yaw, *turns.tolist()]):
            if props:
                fill(stage, self.cast, self._spot(stage, focal_px, props[0], turn, rng), props, rng)
        if rng.random() < CARRIED_SHARE:
            self._carry(stage, focal_px, self._other(thing, stage, rng), rng)
        if rng.random() < PASSING_SHARE:
            self._let_pass(stage, self._other(thing, stage, rng), rng)

    def _other(self, thing: Prop, stage: Stage, rng: np.random.Generator, *, alike: bool = False) -> Prop:
        return self._props(thing, 1, stage, rng, alike=alike)[0]

    def _spot(self, stage: Stage, focal_px: float, lead: Prop, yaw: float, rng: np.random.Generator) -> Spot:
        """Such that the lead has a size as in real video."""
        size_px = float(np.clip(MEDIAN_SIZE_PX * np.exp(0.75 * rng.standard_normal()), *SIZES_PX))
        size_px = max(size_px * min(self.size) / 448, 1.6 * LEAST_PX**0.5)
        return _spot(yaw, max(lead.size_m) * focal_px / size_px, stage, rng)

    def _carry(self, stage: Stage, focal_px: float, prop: Prop, rng: np.random.Generator) -> int:
        """Held before the chest for a while: comes up from below, goes down again."""
        lasts_s = float(np.clip(2.4 * np.exp(0.6 * rng.standard_normal()), 0.8, 12))
        start_s = float(rng.uniform(-0.5 * lasts_s, max(self.duration_s - 0.5 * lasts_s, 0.1)))
        size_px = float(np.exp(rng.uniform(np.log(0.15), np.log(0.5)))) * min(self.size)
        away_m = max(float(max(prop.size_m)) * focal_px / size_px, 0.25)
        hold = away_m * np.array([rng.normal(0, 0.25), rng.uniform(0.05, 0.6), 1.0])
        below = np.array([hold[0], 1.6 * away_m + 0.4, 0.1])
        times = np.array([-0.4, 0, lasts_s, lasts_s + 0.4]) + start_s
        ways = np.stack([below, hold, hold + rng.normal(0, 0.06, 3) * away_m, below])
        return stage.carry(prop, times, ways, sway_rad=float(rng.normal(0, 0.3)))

    def _let_pass(self, stage: Stage, prop: Prop, rng: np.random.Generator) -> None:
        """From one side to the other, near enough to hide much."""
        start_s, lasts_s = float(rng.uniform(0, self.duration_s)), float(rng.uniform(0.5, 1.6))
        near_m = 1.5 * float(max(prop.size_m)) + 0.2
        ways = near_m * np.array([[-1.6, 0.15, 0.7], [1.6, 0.15, 0.7]]) + rng.normal(0, 0.05, (2, 3))
        ways = ways[:: int(rng.choice([-1, 1]))]
        stage.carry(prop, np.array([start_s, start_s + lasts_s]), ways, sway_rad=float(rng.normal(0, 0.3)))

    def _visits(self, stage: Stage, lens: Lens, rng: np.random.Generator) -> list[Visit]:
        """When the head turns to the thing: a few seconds each time, and not always to its middle."""
        if stage.thing_m is None:
            return []
        eye = np.array([0, 0, stage.backdrop.eye_m])
        away = stage.thing_m - eye
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
        """The thing elsewhere, seen from another side in other light, larger than in most frames."""
        for _ in range(4):
            stage = self._stage(thing.item, rng, photographs=(8, 14))
            lens = Lens(horizontal_fov_deg=float(rng.uniform(45, 85)), vignetting=float(rng.uniform(0, 0.4)))
            shown = self.cast.again(thing, stage.bright, rng)
            size_px = min(self.size) * float(np.exp(rng.uniform(np.log(0.2), np.log(0.65))))
            spot = _spot(0.0, max(shown.size_m) * lens.focal_px(self.size[0]) / size_px, stage, rng)
            props = self._props(thing, int(rng.integers(0, 4)), stage, rng)
            place = int(rng.integers(len(props) + 1))
            props.insert(place, shown)
            stage.thing, middle_m = fill(stage, self.cast, spot, props, rng)[place]
            eye = np.array([0, 0, stage.backdrop.eye_m])
            yaw, pitch = (rng.normal(0, 0.1, 2) * np.deg2rad(lens.horizontal_fov_deg)).tolist()
            aim = eye + _swung(middle_m - eye, yaw, pitch)
            camera = replace(self._camera(stage, rng), lens=lens)
            still = film(stage, camera, _still(eye, aim), np.zeros(1), self.size, self._generator(rng))
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
    """Free floor around the place where the photograph was taken."""

    radius_m: float
    cell_m: float = 0.1

    @property
    def origin_m(self) -> tuple[float, float]:
        return -self.radius_m, -self.radius_m

    @property
    def open(self) -> np.ndarray:
        side = max(2, int(np.ceil(2 * self.radius_m / self.cell_m)))
        return np.ones((side, side), bool)


def _spot(yaw: float, distance_m: float, stage: Stage, rng: np.random.Generator) -> Spot:
    kinds = ["stand", "stand", "stand", "air"]
    if distance_m > 1.2:
        kinds += ["ground", "ground", "ground"]
    kind = kinds[int(rng.integers(len(kinds)))]
    if kind == "ground":
        # That far along the line of sight.
        distance_m = float(np.sqrt(max(distance_m**2 - stage.backdrop.eye_m**2, 0.6)))
    return Spot(yaw_rad=yaw, distance_m=float(np.clip(distance_m, 0.25, 5.0)), kind=kind)


def _swung(away_m: np.ndarray, yaw_rad: float, pitch_rad: float) -> np.ndarray:
    """A direction turned aside, and up or down."""
    yaw = np.arctan2(away_m[1], away_m[0]) + yaw_rad
    pitch = np.clip(np.arctan2(away_m[2], np.hypot(*away_m[:2])) + pitch_rad, -1.3, 1.0)
    unit = np.array([np.cos(pitch) * np.cos(yaw), np.cos(pitch) * np.sin(yaw), np.sin(pitch)])
    return np.linalg.norm(away_m) * unit
