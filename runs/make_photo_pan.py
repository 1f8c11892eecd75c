"""Walks among photographs: a head turns in a room of unseen photographs; regions of others are its things.

    python runs/make_photo_pan.py --assets data --out photo_pan

A panorama, or a collage of photographs, surrounds the head; things are cut out of other photographs (all of
the val split) and pasted into it. The head visits one after the other, so things leave by the edge and come
back. A label is painted together with each thing and seen through the same camera: boxes are exact. The query
shows the thing in another room, cut out along another outline, in other light and from another angle.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pan_sets import (
    CRF,
    FPS,
    HEIGHT_PX,
    WIDTH_PX,
    clip,
    draw_questions,
    query_set,
    save_picture,
    sightings,
    summary,
    write_lists,
)
from photo_surroundings import DOME_M, EYE_M, FOCAL_PX, Pasted, Seen, Surroundings, Thing, render
from scipy.interpolate import PchipInterpolator
from torch import Tensor

from lastseen.box import Box
from lastseen.video import VideoWriter
from lastseen_synth.assets import AssetLibrary, attribution
from lastseen_synth.backdrop import collage
from lastseen_synth.cutouts import Cutout
from lastseen_synth.geometry import Cameras, look_at
from lastseen_synth.itinerary import Visit
from lastseen_synth.lens import Pinhole
from lastseen_synth.library import open_library
from lastseen_synth.object_pool import ObjectPool
from lastseen_synth.walk import walk

VERSION = "photo-pan-1"
VIDEOS, THINGS, ABSENT = 16, 9, 2
QUESTIONS = 6  # of one video at most
DURATION_S = (60.0, 80.0)
PANORAMA_SHARE = 0.25
LEAST_CONTRAST = 8.0  # of a thing's cut-out; less cannot be recognised by anyone
MEDIAN_SIDE_PX, SIDES_PX = 90.0, (36.0, 260.0)
ROLLING_SHARE = 1 / 3  # of videos
ROLL_DEG, TILTED_DEG = 35.0, 15.0
LEAST_PX = 8  # shorter side of a box that counts as visible
STEP_M = 0.25  # the head moves by at most this


class PhotoPan:
    def __init__(self, library: AssetLibrary, out: Path, seed: int) -> None:
        self.pool, self.out, self.seed = ObjectPool(library), out, seed
        self.used: set[str] = set()

    def make(self) -> str:
        """Writes the set; returns its counts."""
        for folder in ("videos", "queries"):
            (self.out / folder).mkdir(parents=True, exist_ok=True)
        videos, absent = [], []
        for number in range(VIDEOS):
            video, asked_absent = self._video(
                f"photo{number:02d}", np.random.default_rng([self.seed, number])
            )
            videos.append(video)
            absent += asked_absent
            print(video["video_uid"], len(video["clips"][0]["annotations"]), flush=True)
        write_lists(self.out, VERSION, videos, absent)
        pictures = [p for p in self.pool.library.pictures if p.name in self.used]
        (self.out / "ATTRIBUTION.md").write_text(attribution(pictures))
        return summary(videos, absent)

    def _video(self, uid: str, rng: np.random.Generator) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        things = self._things(THINGS + ABSENT, rng)
        present, absent = things[:THINGS], things[THINGS:]
        around = Surroundings(self._room(things, rng, photographs=(14, 24)))
        focal_px = float(rng.uniform(*FOCAL_PX))
        yaws = rng.uniform(-np.pi, np.pi) + (np.arange(THINGS) + rng.uniform(-0.25, 0.25, THINGS)) * (
            2 * np.pi / THINGS
        )
        places = []
        for thing, yaw in zip(present, yaws.tolist()):
            side_px = float(np.clip(MEDIAN_SIDE_PX * np.exp(0.5 * rng.standard_normal()), *SIDES_PX))
            pitch = float(np.clip(rng.normal(-0.1, 0.25), -0.6, 0.5))
            places.append(_place(yaw, pitch, side_px / focal_px, rng))
            around.paste(thing, places[-1], rng.uniform(0.75, 1.15) * rng.uniform(0.95, 1.05, 3))
        frames = round(float(rng.uniform(*DURATION_S)) * FPS)
        times = np.arange(frames) / FPS
        roll = _roll_rad(times, rng) if rng.random() < ROLLING_SHARE else np.zeros(frames)
        poses = self._head(places, frames / FPS, times, rng)
        cameras = _cameras(_rolled(poses, roll), focal_px)
        seen = render(around, cameras, _gains(times, rng), rng)
        with VideoWriter(self.out / "videos" / f"{uid}.mp4", WIDTH_PX, HEIGHT_PX, FPS, crf=CRF) as writer:
            for image in seen.images:
                writer.write(image)
        asked_sets = self._questions(uid, present, things, seen, roll, rng)
        asked_absent = [
            {
                "query_uid": f"{uid}_absent_{number}",
                "clip_uid": uid,
                "query_frame": int(rng.integers(frames // 2, frames + 1)),
                "object_title": thing.item.family,
                "object_uid": thing.item.name,
                "visual_crop": self._query(f"{uid}_absent_{number}", thing, things, rng),
            }
            for number, thing in enumerate(absent)
        ]
        return clip(uid, frames, asked_sets), asked_absent

    def _questions(
        self,
        uid: str,
        present: list[Thing],
        things: list[Thing],
        seen: Seen,
        roll_rad: np.ndarray,
        rng: np.random.Generator,
    ) -> list[dict[str, Any]]:
        found = []
        for number, thing in enumerate(present):
            boxes = seen.boxes_px[:, number]
            short = np.nan_to_num(np.minimum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]))
            runs = sightings(np.where(short >= LEAST_PX, seen.share[:, number], 0))
            found += [(thing, runs, boxes, asked) for asked in draw_questions(runs, len(boxes), rng)]
        asked_sets = []
        for number in sorted(rng.permutation(len(found))[:QUESTIONS].tolist()):
            thing, runs, boxes, asked = found[number]
            turned = float(np.rad2deg(np.abs(roll_rad[slice(*asked.answer)]).max()))
            names = {"object_title": thing.item.family, "object_uid": thing.item.name}
            crop = self._query(f"{uid}_{number}", thing, things, rng)
            asked_sets.append(query_set(asked, runs, boxes, crop, **names, tilted=turned > TILTED_DEG))
        return asked_sets

    def _things(self, count: int, rng: np.random.Generator) -> list[Thing]:
        """Of different appearance."""
        things: list[Thing] = []
        while len(things) < count:
            item = self.pool.cutouts[int(rng.integers(len(self.pool.cutouts)))]
            if item.twins in {thing.item.twins for thing in things}:
                continue
            cutout = Cutout.draw(self.pool.image(item.source), rng)
            if cutout.contrast >= LEAST_CONTRAST:
                things.append(Thing(item=item, cutout=cutout))
                self.used.add(item.name)
        return things

    def _room(
        self, things: list[Thing], rng: np.random.Generator, *, photographs: tuple[int, int]
    ) -> np.ndarray:
        """[H, 2 H, 3] of photographs that show none of the things."""
        pool, focal_px = self.pool, 1.3 * FOCAL_PX[1]
        if pool.panoramas and rng.random() < PANORAMA_SHARE:
            panorama = pool.panoramas[int(rng.integers(len(pool.panoramas)))]
            self.used.add(panorama.name)
            image = pool.image(panorama)
            return np.roll(image, int(rng.integers(image.shape[1])), 1)[:, :: int(rng.choice([-1, 1]))]
        twins = {thing.item.twins for thing in things}
        flats = [item for item in pool.flats if item.twins not in twins]
        chosen = [flats[i].source for i in rng.permutation(len(flats))[: int(rng.integers(*photographs))]]
        chosen.sort(key=lambda picture: -picture.width)
        self.used |= {picture.name for picture in chosen}
        images = [pool.image(picture) for picture in chosen]
        return collage(images, int(rng.integers(3, 6)), rng, focal_px=focal_px).numpy()

    def _head(
        self, places: list[Pasted], duration_s: float, times: np.ndarray, rng: np.random.Generator
    ) -> Tensor:
        """World-to-camera matrices of a head that looks at one thing after the other, near its centre."""
        visits, now_s, last = [], float(rng.uniform(0.5, 2)), -1
        while now_s < duration_s - 2:
            number = int(rng.integers(len(places)))
            if number == last:
                continue
            last, lasts_s = number, float(np.clip(2.6 * np.exp(0.5 * rng.standard_normal()), 1.0, 7.0))
            yaw = places[number].yaw_rad + float(rng.normal(0, 0.18))
            pitch = places[number].pitch_rad + float(rng.normal(0, 0.12))
            x, y, z = DOME_M * np.array(
                [np.cos(pitch) * np.cos(yaw), np.cos(pitch) * np.sin(yaw), np.sin(pitch)]
            )
            target = (float(x), float(y), float(z) + EYE_M)
            visits.append(Visit(start_s=now_s, end_s=now_s + lasts_s, target_m=target, distance_m=DOME_M))
            now_s += lasts_s + float(rng.uniform(0.8, 3.0))
        path = walk(Disc(), visits, duration_s, rng, eye_height_m=EYE_M)
        return path.at(times)

    def _query(
        self, name: str, thing: Thing, things: list[Thing], rng: np.random.Generator
    ) -> dict[str, Any]:
        """The thing in another room, saved as a whole picture."""
        while True:
            around = Surroundings(self._room(things, rng, photographs=(8, 14)))
            focal_px = float(rng.uniform(*FOCAL_PX))
            side_px = HEIGHT_PX * float(np.exp(rng.uniform(np.log(0.2), np.log(0.6))))
            pitch = float(rng.normal(-0.1, 0.15))
            place = _place(0.0, pitch, side_px / focal_px, rng)
            varied = Thing(item=thing.item, cutout=thing.cutout.varied(rng))
            around.paste(varied, place, rng.uniform(0.7, 1.15) * rng.uniform(0.93, 1.07, 3))
            yaw, rise = rng.normal(0, 0.12, 2)
            aim = [
                np.cos(pitch + rise) * np.cos(yaw),
                np.cos(pitch + rise) * np.sin(yaw),
                np.sin(pitch + rise),
            ]
            eye = torch.tensor([[0.0, 0.0, EYE_M]], dtype=torch.float64)
            pose = look_at(eye, eye + torch.tensor([aim], dtype=torch.float64))
            gains = _gains(np.zeros(1), rng)
            seen = render(around, _cameras(pose, focal_px), gains, rng)
            if seen.share[0, 0] >= 0.95:
                return save_picture(self.out, name, seen.images[0], Box(*map(float, seen.boxes_px[0, 0])))


@dataclass(frozen=True, kw_only=True)
class Disc:
    """Free floor to stand on."""

    cell_m: float = 0.1
    origin_m: tuple[float, float] = (-STEP_M, -STEP_M)

    @property
    def open(self) -> np.ndarray:
        side = round(2 * STEP_M / self.cell_m)
        return np.ones((side, side), bool)


def _place(yaw: float, pitch: float, across_rad: float, rng: np.random.Generator) -> Pasted:
    """Slanted as a card that does not quite face the viewer."""
    narrow, shear = 1 / rng.uniform(0.75, 1.0), rng.uniform(-0.12, 0.12)
    slant = np.array([[narrow, 0.0], [shear, 1.0]])
    return Pasted(yaw_rad=yaw, pitch_rad=pitch, across_rad=across_rad, slant=slant)


def _gains(times_s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[T, 3]: exposure that drifts by a fifth, and a constant tint."""
    phase, period_s = rng.uniform(0, 2 * np.pi), rng.uniform(15, 40)
    drift = rng.uniform(0.8, 1.15) * (1 + 0.2 * np.sin(2 * np.pi * times_s / period_s + phase))
    return drift[:, None] * rng.uniform(0.93, 1.07, 3)


def _roll_rad(times_s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Smooth, to either side."""
    knots = np.arange(0, times_s[-1] + 8, 4.0)
    angles = rng.uniform(-ROLL_DEG, ROLL_DEG, len(knots))
    return np.deg2rad(PchipInterpolator(knots, angles)(times_s))


def _rolled(poses: Tensor, roll_rad: np.ndarray) -> Tensor:
    """The cameras turned about their own axes."""
    turn = torch.eye(4, dtype=poses.dtype).repeat(len(poses), 1, 1)
    cosine, sine = torch.from_numpy(np.cos(roll_rad)), torch.from_numpy(np.sin(roll_rad))
    turn[:, 0, 0], turn[:, 0, 1], turn[:, 1, 0], turn[:, 1, 1] = cosine, sine, -sine, cosine
    return turn @ poses


def _cameras(poses: Tensor, focal_px: float) -> Cameras:
    pinhole = Pinhole(
        width_px=WIDTH_PX,
        height_px=HEIGHT_PX,
        focal_px=focal_px,
        centre_px=(WIDTH_PX / 2, HEIGHT_PX / 2),
    )
    return pinhole.cameras(poses)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--assets", type=Path, required=True, help="folder of packs with images.npz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(PhotoPan(open_library("val", asked.assets), asked.out, asked.seed).make())
