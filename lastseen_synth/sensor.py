"""The sensor and what the camera makes of it: light -> a picture as a small camera stores it.

    light -> glare -> exposure -> noise -> softness -> clipping -> white balance -> style -> sharpening

Exposure and white balance follow the scene with a lag. Their state goes from one batch of frames to the next.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from lastseen_synth.texture import linear_to_srgb

LUMINANCE = (0.2126, 0.7152, 0.0722)


@dataclass(frozen=True, kw_only=True)
class Sensor:
    """The default ("clean") stores light as sRGB and does nothing else.

    | key             | mean brightness (linear, of the logarithm) that exposure aims at; None: gain 1   |
    | gain_stops      | range of the gain in powers of two                                               |
    | exposure_lag_s  | after which about 2/3 of a change of light is made up for                        |
    | balance         | share of the light's tint that white balance removes                             |
    | balance_lag_s   | likewise for the tint                                                            |
    | cast            | tint that stays: logarithm, red and blue                                         |
    | glare           | share of the light that is scattered all over the picture                        |
    | electrons_per_s | that a pixel of brightness 1 releases in a second; inf: no noise                 |
    | read_noise      | in electrons                                                                     |
    | softness_px     | sigma                                                                            |
    | sharpening      | how much of the fine detail is added once more: makes halos                      |
    | contrast        | 0: none, 1: a strong S curve                                                     |
    | shoulder        | brightness from which highlights are compressed, 1: they are just cut            |
    | saturation      | 1: as it is                                                                      |
    | black           | stored value of no light                                                         |
    | jpeg_quality    | for those who store pictures, see `jpeg`; None: not compressed                   |
    """

    key: float | None = None
    gain_stops: tuple[float, float] = (-4.0, 4.0)
    exposure_lag_s: float = 0.5
    balance: float = 0.0
    balance_lag_s: float = 2.0
    cast: tuple[float, float] = (0.0, 0.0)
    glare: float = 0.0
    electrons_per_s: float = math.inf
    read_noise: float = 0.0
    softness_px: float = 0.0
    sharpening: float = 0.0
    contrast: float = 0.0
    shoulder: float = 1.0
    saturation: float = 1.0
    black: float = 0.0
    jpeg_quality: int | None = None

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Sensor:
        """A small camera of the last twenty years."""
        return cls(
            key=float(0.16 * np.exp(0.2 * rng.standard_normal())),
            gain_stops=(-4.0, float(rng.uniform(2.0, 3.5))),
            exposure_lag_s=float(rng.uniform(0.3, 0.9)),
            balance=float(rng.uniform(0.5, 0.95)),
            balance_lag_s=float(rng.uniform(1.0, 4.0)),
            cast=(float(rng.normal(0, 0.04)), float(rng.normal(0, 0.04))),
            glare=float(rng.uniform(0.01, 0.06)),
            electrons_per_s=float(np.exp(rng.uniform(np.log(1.5e5), np.log(2e6)))),
            read_noise=float(rng.uniform(2.0, 6.0)),
            softness_px=float(rng.uniform(0.3, 0.75)),
            sharpening=float(rng.uniform(0.1, 0.8)),
            contrast=float(rng.uniform(0.0, 0.5)),
            shoulder=float(rng.uniform(0.6, 0.95)),
            saturation=float(rng.uniform(0.8, 1.2)),
            black=float(rng.uniform(0.0, 0.03)),
            jpeg_quality=int(rng.integers(40, 93)),
        )


@dataclass(frozen=True, kw_only=True)
class SensorState:
    """What the camera has set at `time_s`: logarithms of the gain, and of the red and blue gains, float64."""

    time_s: float
    log_gain: Tensor
    log_balance: Tensor


def develop(
    light: Tensor,
    times_s: Tensor,
    sensor: Sensor,
    generator: torch.Generator,
    *,
    exposure_s: float = 0.01,
    state: SensorState | None = None,
) -> tuple[Tensor, SensorState]:
    """Pictures uint8 [B, H, W, 3] of `light` [B, 3, H, W], consecutive frames at `times_s` [B], and the state
    for the frames after them. Without a state before them, the camera has adapted to the first frame.

    `generator`, of the light's device, makes the noise.
    """
    if sensor.glare:
        light = _with_glare(light, sensor.glare)
    gain, balance, state = _adapted(light, times_s, sensor, state)
    light = light * gain[:, None, None, None].to(light)
    if math.isfinite(sensor.electrons_per_s):
        light = _noisy(light, gain, sensor, exposure_s, generator)
    if sensor.softness_px:
        light = blurred(light, sensor.softness_px)
    # What is white stays white: every channel is cut at the same level, before and after.
    light = light.clamp(0, 4) * balance[:, :, None, None].to(light)
    picture = _styled(light, sensor)
    if sensor.sharpening:
        grey = _grey(picture)
        picture = picture + sensor.sharpening * (grey - blurred(grey, 1.0))
    stored = (picture.clamp(0, 1) * 255).round().to(torch.uint8)
    return stored.permute(0, 2, 3, 1).contiguous(), state


def _grey(picture: Tensor) -> Tensor:
    """[B, 1, H, W]."""
    red, green, blue = picture.unbind(1)
    return (LUMINANCE[0] * red + LUMINANCE[1] * green + LUMINANCE[2] * blue)[:, None]


def _with_glare(light: Tensor, share: float) -> Tensor:
    """Half of it stays near the bright places, half goes everywhere."""
    small = F.adaptive_avg_pool2d(light.clamp(max=16), (18, 32))
    near = F.interpolate(blurred(small, 1.5), light.shape[2:], mode="bilinear", align_corners=False)
    return light * (1 - share) + share / 2 * (near + small.mean((2, 3), keepdim=True))


def _adapted(
    light: Tensor, times_s: Tensor, sensor: Sensor, state: SensorState | None
) -> tuple[Tensor, Tensor, SensorState]:
    """Gain [B] and colour gains [B, 3] of every frame."""
    meter = _metered(light)
    low, high = (stops * math.log(2) for stops in sensor.gain_stops)
    wanted_gain = torch.zeros_like(meter[:, 0])
    if sensor.key is not None:
        brightness = (meter * meter.new_tensor(LUMINANCE)).sum(1)
        wanted_gain = (math.log(sensor.key) - brightness).clamp(low, high)
    tint = meter[:, [0, 2]] - meter[:, 1:2]
    wanted_balance = -sensor.balance * tint.clamp(-0.7, 0.7) + meter.new_tensor(sensor.cast)
    times = times_s.to(meter)
    before = None if state is None else (state.time_s, state.log_gain, state.log_balance)
    log_gain = follow(wanted_gain, times, sensor.exposure_lag_s, before and before[:2])
    log_balance = follow(wanted_balance, times, sensor.balance_lag_s, before and before[::2])
    state = SensorState(time_s=float(times[-1]), log_gain=log_gain[-1], log_balance=log_balance[-1])
    red, blue = log_balance.exp().unbind(1)
    balance = torch.stack([red, torch.ones_like(red), blue], 1)
    brightness = (balance * balance.new_tensor(LUMINANCE)).sum(1, keepdim=True)
    return log_gain.exp(), balance / brightness, state


def _metered(light: Tensor) -> Tensor:
    """Mean logarithm [B, 3] float64, the middle of the picture counting more."""
    small = F.adaptive_avg_pool2d(light, (16, 16)).double().clamp(1e-4, 8).log()
    weight = torch.hann_window(16, periodic=False, dtype=torch.float64, device=light.device) + 0.4
    weight = weight[:, None] * weight
    return (small * weight).sum((2, 3)) / weight.sum()


def follow(wanted: Tensor, times_s: Tensor, lag_s: float, before: tuple[float, Tensor] | None) -> Tensor:
    """What lags behind `wanted` [B, ...], given at ascending times [B]: it always makes up for a share of the
    difference. `before`: a time and the value then; None: it starts at the first one wanted.
    """
    if before is None:
        before = (float(times_s[0]), wanted[0])
    start_s, start = before
    times = torch.cat([times_s.new_tensor([start_s]), times_s])
    # All at once: a sum of everything wanted so far, each faded by the time since.
    fades = ((times[None, 1:] - times[1:, None]) / lag_s).tril().exp().tril()
    gained = 1 - (-times.diff() / lag_s).exp()
    flat = wanted.flatten(1) if wanted.ndim > 1 else wanted[:, None]
    values = fades @ (gained[:, None] * flat) + ((start_s - times_s) / lag_s).exp()[:, None] * start.flatten()
    return values.view(wanted.shape)


def _noisy(
    light: Tensor, gain: Tensor, sensor: Sensor, exposure_s: float, generator: torch.Generator
) -> Tensor:
    """Photons come by chance, and reading them out adds more: both grow with the gain."""
    per_unit = sensor.electrons_per_s * max(exposure_s, 1e-4) / gain[:, None, None, None].to(light)
    noise = torch.randn(light.shape, generator=generator, device=light.device)
    return light + noise * (light / per_unit + (sensor.read_noise / per_unit) ** 2).sqrt()


def _styled(light: Tensor, sensor: Sensor) -> Tensor:
    """sRGB values, as stored / 255."""
    knee = sensor.shoulder
    if knee < 1:
        over = (light - knee).clamp(min=0)
        light = light.clamp(max=knee) + (1 - knee) * (1 - (-over / (1 - knee)).exp())
    picture = linear_to_srgb(light)
    picture = picture + sensor.contrast * (picture * picture * (3 - 2 * picture) - picture)
    if sensor.saturation != 1:
        grey = _grey(picture)
        picture = grey + sensor.saturation * (picture - grey)
    return sensor.black + (1 - sensor.black) * picture


def blurred(pictures: Tensor, sigma_px: float) -> Tensor:
    """By a Gaussian; edges repeat."""
    reach = max(1, math.ceil(2.5 * sigma_px))
    offsets = torch.arange(-reach, reach + 1, device=pictures.device, dtype=pictures.dtype)
    weights = (-0.5 * (offsets / sigma_px) ** 2).exp()
    weights = weights / weights.sum()
    flat = F.pad(pictures, (reach,) * 4, mode="replicate").flatten(0, 1)[:, None]
    flat = F.conv2d(F.conv2d(flat, weights.view(1, 1, 1, -1)), weights.view(1, 1, -1, 1))
    return flat.view(pictures.shape)


def jpeg(images: Tensor, quality: int) -> Tensor:
    """The pictures uint8 [B, H, W, 3] after JPEG compression with half the colour resolution, on the CPU."""
    stored = []
    for image in images.cpu().numpy():
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=quality, subsampling="4:2:0")
        stored.append(np.asarray(Image.open(buffer)))
    return torch.from_numpy(np.stack(stored))
