"""A virtual head: a window that pans, zooms and rolls smoothly over a shot (runs/make_real_pan.py)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from pan_sets import FPS, HEIGHT_PX, LEAST_VISIBLE, WIDTH_PX, runs_of, sightings
from PIL import Image
from scipy.interpolate import PchipInterpolator

from lastseen.box import Box

WINDOW_SIDE = (0.45, 0.8)  # of the largest window without roll that fits the shot
ROLL_DEG = (18.0, 35.0)
TILTED_DEG = 15.0  # a sighting that rolls more than this is tilted
WAYPOINT_S = (1.6, 3.4)
IN_VIEW = (0.3, 0.6)  # wanted share of the time that the thing is in view


@dataclass(frozen=True, kw_only=True)
class View:
    """Windows of T frames over a picture, in its pixels: centres [T, 2], heights [T] and rolls [T] (rad).

    The window's aspect is the frame's. A positive roll turns the window clockwise, so the picture turns
    counterclockwise in the frame.
    """

    centre_px: np.ndarray
    height_px: np.ndarray
    roll_rad: np.ndarray

    def boxes(self, boxes_px: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Boxes [T, 4] of the picture -> clipped boxes of the frames [T, 4], and shares [T] inside them.

        A turned thing's bounds are those of the ellipse in its box: of a box they would be too large.
        """
        scale = HEIGHT_PX / self.height_px
        cosine, sine = np.cos(self.roll_rad), np.sin(self.roll_rad)
        dx, dy = ((boxes_px[:, :2] + boxes_px[:, 2:]) / 2 - self.centre_px).T
        centre = np.stack([cosine * dx + sine * dy, cosine * dy - sine * dx], 1) * scale[:, None]
        centre += np.array([WIDTH_PX, HEIGHT_PX]) / 2
        a, b = ((boxes_px[:, 2:] - boxes_px[:, :2]) / 2).T
        half = np.stack([np.hypot(a * cosine, b * sine), np.hypot(a * sine, b * cosine)], 1) * scale[:, None]
        whole = np.concatenate([centre - half, centre + half], 1)
        clipped = whole.clip(0, [WIDTH_PX, HEIGHT_PX] * 2)
        return clipped, box_areas(clipped) / box_areas(whole)

    def frame(self, number: int, picture: np.ndarray) -> np.ndarray:
        """The frame [HEIGHT_PX, WIDTH_PX, 3] that this window of the picture fills."""
        step = self.height_px[number] / HEIGHT_PX
        cosine, sine = step * np.cos(self.roll_rad[number]), step * np.sin(self.roll_rad[number])
        x, y = self.centre_px[number]
        x, y = (
            x - cosine * WIDTH_PX / 2 + sine * HEIGHT_PX / 2,
            y - sine * WIDTH_PX / 2 - cosine * HEIGHT_PX / 2,
        )
        turned = Image.fromarray(picture).transform(
            (WIDTH_PX, HEIGHT_PX),
            Image.Transform.AFFINE,
            (cosine, -sine, x, sine, cosine, y),
            Image.Resampling.BICUBIC,
        )
        return np.asarray(turned)


def draw_view(
    content: Box,
    count: int,
    rng: np.random.Generator,
    *,
    rolls: bool,
    sides: tuple[float, float] = WINDOW_SIDE,
) -> View:
    """A smooth random path through waypoints, more of them near the edges, always inside the content."""
    times = [0.0]
    while times[-1] < count / FPS:
        times.append(times[-1] + float(rng.uniform(*WAYPOINT_S)))
    size = len(times)
    places = rng.beta(0.6, 0.6, (size, 2))
    side_at = rng.uniform(*sides, size)
    rolls_deg = rng.uniform(*ROLL_DEG, size) * rng.choice([-1.0, 1.0]) * rng.choice([1, 1, 1, -1], size)
    knots = np.column_stack([places, side_at, np.deg2rad(rolls_deg) * rolls])
    path = PchipInterpolator(times, knots)(np.arange(count) / FPS)
    side, roll = path[:, 2], path[:, 3]
    aspect = WIDTH_PX / HEIGHT_PX
    height = side * min(content.height, content.width / aspect)
    # The bounds of the turned window must fit.
    cosine, sine = np.cos(roll), np.abs(np.sin(roll))
    wide, high = aspect * cosine + sine, aspect * sine + cosine
    height = np.minimum(height, 0.97 * np.minimum(content.width / wide, content.height / high))
    room = np.array([content.width, content.height]) - np.stack([wide, high], 1) * height[:, None]
    corner = np.array([content.x1, content.y1]) + room * path[:, :2]
    centre = corner + np.stack([wide, high], 1) * height[:, None] / 2
    return View(centre_px=centre, height_px=height, roll_rad=roll)


def path_cost(view: View, boxes_px: np.ndarray, wanted: float, *, rolls: bool) -> float:
    """How far a path is from: in view for the wanted share of the time, leaving and coming back by the edge,
    out of view at both ends of the shot, no glimpses and no gaps of a frame or two."""
    _, share = view.boxes(boxes_px)
    seen, visible = sightings(share), share >= LEAST_VISIBLE
    in_view = sum(stop - first for first, stop in seen) / len(share)
    gaps = [b - a for (_, a), (b, _) in pairwise(seen)]
    cost = 3.0 * abs(in_view - wanted) + 3.0 * max(0.0, in_view - IN_VIEW[1])
    cost += 0.5 * (len(seen) < 2) + 0.2 * (len(runs_of(visible)) - len(seen)) + 0.3 * sum(g < 3 for g in gaps)
    cost += 0.4 * bool(visible[:2].any()) + 0.8 * bool(visible[-3:].any())
    if rolls and seen:
        cost += 0.5 * float(np.mean([not tilted(view, run) for run in seen]))
    return cost


def tilted(view: View, run: tuple[int, int]) -> bool:
    return bool(np.abs(view.roll_rad[slice(*run)]).max() > np.deg2rad(TILTED_DEG))


def box_areas(boxes: np.ndarray) -> np.ndarray:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
