"""Episodes: a walk through one room, past things that are queried, some of which are moved or carried.

plan_episode -> EpisodePlan -> render_episode -> Footage, Footage, ...      frames and annotations, in order
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lastseen.errors import SynthError
from lastseen_synth.assets import Asset, AssetLibrary, with_skin_and_sleeve
from lastseen_synth.camera import HeadCamera
from lastseen_synth.clutter import Spot
from lastseen_synth.geometry import Cameras, Poses
from lastseen_synth.held_object import Grip, held_transforms
from lastseen_synth.itinerary import Visit
from lastseen_synth.lens import WORN_FOV_DEG
from lastseen_synth.meshes import MeshScene
from lastseen_synth.rooms import Room, furnish, light_changes, shadows_of
from lastseen_synth.sensor import SensorState
from lastseen_synth.shade import render
from lastseen_synth.shadow import Lights
from lastseen_synth.timeline import Fixation, draw_fixations, unseen_moment
from lastseen_synth.visibility import unoccluded_pixels, visible_boxes
from lastseen_synth.walk import Walk, walk

ANNOTATION_FPS = 5.0
LIGHTS_HZ = 10.0


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    width_px: int = 640
    height_px: int = 480
    fps: float = 10.0  # of the video: a multiple of ANNOTATION_FPS
    duration_s: tuple[float, float] = (30.0, 300.0)
    things: tuple[int, int] = (3, 6)
    # Share of a 90 degree view that a thing fills when it is fixated, if the wearer can get close enough.
    view_share: tuple[float, float] = (0.09, 0.36)
    fov_deg: tuple[float, float] = WORN_FOV_DEG  # of the lens, from side to side
    antialias: bool = True
    max_triangles: int = 60_000

    def __post_init__(self) -> None:
        if self.fps <= 0 or self.fps % ANNOTATION_FPS:
            raise SynthError(f"fps must be a multiple of {ANNOTATION_FPS:g}, got {self.fps:g}")
        if not 5 <= self.duration_s[0] <= self.duration_s[1]:
            raise SynthError(f"an episode lasts 5 seconds or more, got {self.duration_s}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Move:
    """From `end_s` on the thing rests at `goal` [4, 4]; if carried, the hand holds it from `start_s` on."""

    thing: int
    start_s: float
    end_s: float
    goal: Tensor
    carried: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class EpisodePlan:
    settings: EpisodeSettings
    room: Room
    things: tuple[Asset, ...]
    absent: tuple[Asset, ...]  # queried, but not in the room
    hand: int | None  # instance number
    grip: Grip | None
    walk: Walk
    camera: HeadCamera
    moves: tuple[Move, ...]
    lights: Lights  # LIGHTS_HZ times a second
    duration_s: float
    noise_seed: int

    def items(self) -> tuple[Asset, ...]:
        """Everything from the library that may be seen, for attribution."""
        return (*(placed.asset for placed in self.room.placed), *self.things)


@dataclass(frozen=True, kw_only=True)
class Footage:
    """B consecutive frames, and the annotations of K of them: those at ANNOTATION_FPS.

    | images     | uint8 [B, H, W, 3]                                              |
    | boxes_px   | float32 [K, things, 4], nan where not visible at all            |
    | share      | float32 [K, things] share of the thing that is visible          |
    | instance   | int32 [K, H, W] instance id of each pixel, -1: none             |
    """

    images: Tensor
    boxes_px: np.ndarray
    share: np.ndarray
    instance: Tensor


def plan_episode(
    library: AssetLibrary,
    rng: np.random.Generator,
    settings: EpisodeSettings = EpisodeSettings(),
    *,
    device: torch.device | str = "cpu",
) -> EpisodePlan:
    things, absent = draw_things(library, rng, settings.things)
    duration_s = round(float(rng.uniform(*settings.duration_s)) * ANNOTATION_FPS) / ANNOTATION_FPS
    hands = library.kind("hand")
    hand_asset = with_skin_and_sleeve(hands[rng.integers(len(hands))], rng) if hands else None
    room = furnish(
        library,
        rng,
        things=things,
        avoid=absent,
        extras=[hand_asset] if hand_asset else [],
        max_triangles=settings.max_triangles,
        device=device,
    )
    resting = [_transform_of(room, number) for number in room.things]
    fixations = draw_fixations(len(things), duration_s, rng, can_carry=hand_asset is not None)
    visits, moves, carried = _visits(fixations, things, resting, list(room.spots), settings.view_share, rng)
    places = np.array([placed.transform[:3, 3].numpy() for placed in room.placed])
    interest = places[places[:, 2] > 0]
    path = walk(room.free, visits, duration_s, rng, hands=carried, points_of_interest_m=interest)
    moves = _unseen(moves, path, resting, things)
    aspect = settings.width_px / settings.height_px
    moments = np.arange(0, duration_s + 1, 1 / LIGHTS_HZ)
    return EpisodePlan(
        settings=settings,
        room=room,
        things=tuple(things),
        absent=tuple(absent),
        hand=room.extras[0] if hand_asset else None,
        grip=Grip.draw(hand_asset, rng) if hand_asset else None,
        walk=path,
        camera=HeadCamera.draw(rng, aspect=aspect, fov_deg=settings.fov_deg),
        moves=tuple(moves),
        lights=light_changes(room, moments, rng),
        duration_s=duration_s,
        noise_seed=int(rng.integers(2**31)),
    )


def seen_from_rad(plan: EpisodePlan, thing: int, time_s: float) -> float:
    """Direction from a resting thing to the wearer, in the thing's own coordinates."""
    earlier = [move.goal for move in plan.moves if move.thing == thing and move.end_s <= time_s]
    rest = earlier[-1] if earlier else _transform_of(plan.room, plan.room.things[thing])
    camera = plan.walk.at([time_s])[0]
    eye = -camera[:3, :3].T @ camera[:3, 3]
    to_eye = rest[:3, :3].T @ (eye - rest[:3, 3])
    return float(torch.atan2(to_eye[1], to_eye[0]))


def draw_things(
    library: AssetLibrary, rng: np.random.Generator, count: tuple[int, int]
) -> tuple[list[Asset], list[Asset]]:
    """Things to query that are in the room, and two that are not; all of different families."""
    objects = library.kind("object")
    number = int(rng.integers(count[0], count[1] + 1))
    chosen: list[Asset] = []
    for index in rng.permutation(len(objects)):
        asset = objects[index]
        if max(asset.size_m) < 0.4 and asset.family not in {other.family for other in chosen}:
            chosen.append(asset)
        if len(chosen) == number + 2:
            return chosen[:number], chosen[number:]
    raise SynthError(
        f"the library has {len(chosen)} families of objects under 40 cm, an episode with {number} things "
        f"needs {number + 2}: add objects or ask for fewer things"
    )


@torch.no_grad()
def render_episode(plan: EpisodePlan, *, watched: Sequence[int] | None = None) -> Iterator[Footage]:
    """Annotates the episode's things, or the `watched` instances of its room."""
    things = list(plan.room.things if watched is None else watched)
    settings, device = plan.settings, plan.room.scene.surface.device
    batch = 64 if device.type == "cuda" else 4
    generator = torch.Generator(device).manual_seed(plan.noise_seed)
    times = np.arange(round(plan.duration_s * settings.fps)) / settings.fps
    every = round(settings.fps / ANNOTATION_FPS)
    state: SensorState | None = None
    for scene, carried, first, last in _segments(plan, times):
        moving = (plan.room.things[carried.thing], plan.hand) if carried and plan.hand is not None else ()
        shadows = shadows_of(replace(plan.room, scene=scene), moving=moving)
        for start in range(first, last, batch):
            chosen = times[start : min(start + batch, last)]
            shots = plan.camera.shots(
                plan.walk.at, chosen, settings.width_px, settings.height_px, device=device
            )
            poses = _held_poses(plan, carried, shots.moments_s) if moving and carried else None
            lights = _lights_at(plan.lights, shots.moments_s)
            picture = render(
                scene, shots.cameras, lights, shadows=shadows, poses=poses, antialias=settings.antialias
            )
            frames = plan.camera.develop(shots, picture.rgb, picture.instance, generator, state=state)
            state = frames.state
            places = np.array([i for i in range(len(chosen)) if (start + i) % every == 0], int)
            # The annotation is that of the moment in the middle of the exposure.
            counts = np.array(shots.counts)
            middle = torch.from_numpy(np.cumsum(counts) - counts + counts // 2)[places]
            instance = frames.instance[places]
            boxes, share = _annotations(
                things, scene, shots.cameras, middle, poses, picture.instance, instance
            )
            yield Footage(
                images=frames.images,
                boxes_px=boxes,
                share=share,
                instance=instance,
            )


def _annotations(
    things: list[int],
    scene: MeshScene,
    cameras: Cameras,
    middle: Tensor,
    poses: Poses | None,
    pinhole_ids: Tensor,
    final_ids: Tensor,
) -> tuple[np.ndarray, np.ndarray]:
    if not len(middle):
        return np.zeros((0, len(things), 4), np.float32), np.zeros((0, len(things)), np.float32)
    where = middle.to(cameras.world_to_camera.device)
    boxes, _ = visible_boxes(final_ids, things)
    at = replace(
        cameras,
        world_to_camera=cameras.world_to_camera[where],
        focal_px=cameras.focal_px[where],
        centre_px=cameras.centre_px[where],
    )
    there = replace(poses, transforms=poses.transforms[where]) if poses else None
    whole = unoccluded_pixels(scene.geometry, at, things, poses=there)
    _, seen = visible_boxes(pinhole_ids[where], things)
    share = seen / whole.clamp(min=1)
    return boxes.cpu().numpy(), share.float().cpu().numpy()


def _segments(plan: EpisodePlan, times: np.ndarray) -> Iterator[tuple[MeshScene, Move | None, int, int]]:
    """Intervals of frames in which only the carried thing (if any) moves: scene, move, first, last."""
    scene, first = plan.room.scene, 0
    resting = {number: _transform_of(plan.room, number) for number in plan.room.things}
    for move in plan.moves:
        number = plan.room.things[move.thing]
        start, end = np.searchsorted(times, [move.start_s, move.end_s])
        if start > first:
            yield scene, None, first, int(start)
        if end > start:
            yield scene, move, int(start), int(end)
        first = int(end)
        scene = scene.moved(number, move.goal @ torch.linalg.inv(resting[number]))
        resting[number] = move.goal
    if len(times) > first:
        yield scene, None, first, len(times)


def _held_poses(plan: EpisodePlan, move: Move, moments_s: Tensor) -> Poses:
    """Poses of hand and thing in front of the wearer, relative to where they rest in the scene."""
    assert plan.hand is not None and plan.grip is not None
    number = plan.room.things[move.thing]
    rest = _rest_before(plan, move)
    body = plan.walk.body_to_world(moments_s.cpu())
    eyes = torch.linalg.inv(plan.walk.at(moments_s.cpu()))
    hand, thing = held_transforms(plan.grip, plan.things[move.thing], body, eyes)
    hand_rest = _transform_of(plan.room, plan.hand)
    transforms = torch.stack([thing @ torch.linalg.inv(rest), hand @ torch.linalg.inv(hand_rest)], 1)
    return Poses(instances=(number, plan.hand), transforms=transforms.to(plan.room.scene.surface.device))


def _rest_before(plan: EpisodePlan, move: Move) -> Tensor:
    earlier = [m for m in plan.moves if m.thing == move.thing and m.end_s < move.end_s]
    return earlier[-1].goal if earlier else _transform_of(plan.room, plan.room.things[move.thing])


def _transform_of(room: Room, instance: int) -> Tensor:
    return next(placed.transform for placed in room.placed if placed.instance == instance)


def _lights_at(lights: Lights, moments_s: Tensor) -> Lights:
    index = (moments_s * LIGHTS_HZ).round().long().clamp(0, len(lights.sky_colour) - 1)
    index = index.to(lights.sky_colour.device)
    sun = lights.sun_colour
    return replace(
        lights,
        lamp_colours=lights.lamp_colours[index],
        sky_colour=lights.sky_colour[index],
        ground_colour=lights.ground_colour[index],
        sun_colour=sun[index] if sun is not None and sun.ndim == 2 else sun,
    )


def _visits(
    fixations: list[Fixation],
    things: list[Asset],
    resting: list[Tensor],
    spots: list[Spot],
    view_share: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[list[Visit], list[Move], list[tuple[float, float]]]:
    """Where each fixation goes; things that are to reappear elsewhere get a new place."""
    current, facing = list(resting), [None] * len(things)  # type: list[Tensor], list[float | None]
    visits, moves, carried = [], [], []
    for fixation in fixations:
        thing = things[fixation.thing]
        spot = _spot_for(thing, spots, rng) if fixation.moved else None
        if spot is not None:
            goal = _resting_at(spot, rng)
            moves.append(
                Move(
                    thing=fixation.thing,
                    start_s=fixation.free_s,
                    end_s=fixation.start_s,
                    goal=goal,
                    carried=fixation.carried,
                )
            )
            if fixation.carried:
                carried.append((fixation.free_s, fixation.start_s))
            current[fixation.thing], facing[fixation.thing] = goal, spot.facing_rad
        height = thing.size_m[2] / 2
        target = (current[fixation.thing] @ torch.tensor([0, 0, height, 1.0], dtype=torch.float64))[:3]
        visits.append(
            Visit(
                start_s=fixation.start_s,
                end_s=fixation.end_s,
                target_m=tuple(target.tolist()),
                distance_m=_distance_m(thing, view_share, rng),
                facing_rad=facing[fixation.thing],
            )
        )
    return visits, moves, carried


def _distance_m(thing: Asset, view_share: tuple[float, float], rng: np.random.Generator) -> float:
    share = np.exp(rng.uniform(*np.log(view_share)))
    return float(np.clip(max(thing.size_m) / (2 * share), 0.5, 3.0))


def _spot_for(thing: Asset, spots: list[Spot], rng: np.random.Generator) -> Spot | None:
    """Removes a spot from the list that is large enough for the thing."""
    radius, height = np.hypot(*thing.size_m[:2]) / 2, thing.size_m[2]
    fitting = [s for s in spots if s.radius_m >= radius and s.clearance_m > height + 0.01]
    if not fitting:
        return None
    spot = fitting[rng.integers(len(fitting))]
    spots[:] = [s for s in spots if s is not spot]
    return spot


def _resting_at(spot: Spot, rng: np.random.Generator) -> Tensor:
    turn = rng.uniform(0, 2 * np.pi)
    goal = torch.eye(4, dtype=torch.float64)
    goal[:2, :2] = torch.tensor([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    goal[:3, 3] = torch.as_tensor(spot.position_m, dtype=torch.float64)
    return goal


def _unseen(moves: list[Move], path: Walk, resting: list[Tensor], things: list[Asset]) -> list[Move]:
    """Times of moves that are not carried: when neither the old nor the new place is in view."""
    current = list(resting)
    settled = []
    for move in sorted(moves, key=lambda m: m.end_s):
        places = torch.stack([current[move.thing][:3, 3], move.goal[:3, 3]])
        if not move.carried:
            moment = unseen_moment(path, places, move.start_s, move.end_s)
            move = replace(move, start_s=moment, end_s=moment)
        current[move.thing] = move.goal
        settled.append(move)
    return sorted(settled, key=lambda m: m.end_s)
