"""Fits the basis in which an index keeps small features (lastseen.model.token_basis) to a model.

    python runs/fit_token_basis.py --assets PACKS --out lastseen/assets/model

The pictures are parts of the packs' training photographs, cut to 16:9; every block of patches counts once.
Prints how near decoded vectors are to the exact ones, on photographs of the validation split.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from PIL import Image
from torch import Tensor

from lastseen.localizer import Localizer
from lastseen.model.token_basis import SIDE, TokenBasis
from lastseen.weights import save_token_basis
from lastseen_synth.assets import Picture
from lastseen_synth.packs import read_packs

WIDTH, HEIGHT = 640, 360
KINDS = ("pano", "grocery", "caltech101")
VIEWS_OF_PANO = 4
PADDED = 60  # photographs whose padding is looked at


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--assets", type=Path, required=True, help="folder of packs with images.npz")
    parser.add_argument("--weights", type=Path, help="the model's folder; the bundled one unless given")
    parser.add_argument("--out", type=Path, required=True, help="folder for token_basis.safetensors")
    parser.add_argument("--pictures", type=int, default=450)
    parser.add_argument("--engine")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    localizer = Localizer.from_pretrained(arguments.weights, engine=arguments.engine)
    pictures = [picture for picture in read_packs(arguments.assets).pictures if picture.kind in KINDS]
    basis = fitted(localizer, chosen(pictures, "train", arguments.pictures, arguments.seed))
    save_token_basis(basis, arguments.out)
    vectors = torch.cat(
        list(blocks(localizer, chosen(pictures, "val", arguments.pictures // 10, arguments.seed)))
    )
    cosines = F.cosine_similarity(basis.decode(basis.encode(vectors)), vectors, dim=-1)
    print(
        f"cosine of decoded and exact vectors, photographs of the validation split: mean "
        f"{cosines.mean():.4f}, lowest percent {cosines.quantile(0.01):.4f}; basis {basis.fingerprint[:12]}"
    )


def chosen(pictures: list[Picture], split: str, count: int, seed: int) -> list[Picture]:
    mine = [picture for picture in pictures if picture.split == split]
    return [mine[number] for number in np.random.default_rng(seed).permutation(len(mine))[:count]]


def fitted(localizer: Localizer, pictures: list[Picture]) -> TokenBasis:
    count, total, products = 0, torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for vectors in blocks(localizer, pictures):
        exact = vectors.flatten(1)
        count, total = count + len(exact), total + exact.double().sum(0)
        products = products + (exact.T @ exact).double()
    mean = total / count
    covariance = products / count - torch.outer(mean, mean)
    return TokenBasis.fitted(mean, covariance, padding(localizer, pictures[:PADDED]))


def padding(localizer: Localizer, pictures: list[Picture]) -> Tensor:
    """[2, d, c] mean vectors of the rows above and below a picture, by their distance from it"""
    letterbox, patch = localizer.model.letterbox(WIDTH, HEIGHT), localizer.model.patch
    top = letterbox.top // patch
    bottom = top + letterbox.content_height // patch
    views = [view for picture in pictures for view in cuts(picture)]
    means = []
    for at in range(0, len(views), localizer.batch):
        features = localizer.encode_pictures(views[at : at + localizer.batch]).float()
        rows = localizer.model.frame_vectors(features).mean((0, 3)).T.cpu()
        means.append(torch.stack([rows[:top].flip(0), rows[bottom : bottom + top]]))
    return torch.stack(means).mean(0)


def blocks(localizer: Localizer, pictures: list[Picture]) -> Iterator[Tensor]:
    """Unit vectors [n, 4, c] of blocks of patches that show a picture, a batch of pictures at a time."""
    letterbox, patch = localizer.model.letterbox(WIDTH, HEIGHT), localizer.model.patch
    top, left = letterbox.top // patch, letterbox.left // patch
    bottom = top + letterbox.content_height // patch
    right = left + letterbox.content_width // patch
    views = [view for picture in pictures for view in cuts(picture)]
    for at in range(0, len(views), localizer.batch):
        features = localizer.encode_pictures(views[at : at + localizer.batch]).float()
        vectors = localizer.model.frame_vectors(features)[:, :, top:bottom, left:right]
        yield rearrange(vectors, "n c (y v) (x u) -> (n y x) (v u) c", v=SIDE, u=SIDE).cpu()


def cuts(picture: Picture) -> list[np.ndarray]:
    """The middle of a photograph, or views around a panorama's horizon: [HEIGHT, WIDTH, 3]"""
    image = Image.fromarray(picture.image())
    if picture.kind != "pano":
        scale = max(WIDTH / image.width, HEIGHT / image.height)
        width, height = WIDTH / scale, HEIGHT / scale
        left, top = max(0.0, (image.width - width) / 2), max(0.0, (image.height - height) / 2)
        right, bottom = min(image.width, left + width), min(image.height, top + height)
        return [_resized(image, (left, top, right, bottom))]
    height = image.height * 0.6
    width, top = height * WIDTH / HEIGHT, image.height * 0.2
    room = image.width - width
    lefts = [room * number / VIEWS_OF_PANO for number in range(VIEWS_OF_PANO)]
    return [_resized(image, (left, top, left + width, top + height)) for left in lefts]


def _resized(image: Image.Image, box: tuple[float, float, float, float]) -> np.ndarray:
    return np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC, box))


if __name__ == "__main__":
    main()
