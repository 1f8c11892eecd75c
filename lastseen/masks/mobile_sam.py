"""MobileSAM: an image encoder, a prompt encoder and a mask decoder.

encode: once per picture --> segment: once per box
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from lastseen.masks.image_encoder import TinyViT, TinyViTConfig
from lastseen.masks.mask_decoder import DecoderConfig, MaskDecoder
from lastseen.masks.prompt_encoder import PromptEncoder


@dataclass(frozen=True, kw_only=True)
class MobileSamConfig:
    encoder: TinyViTConfig = TinyViTConfig()
    decoder: DecoderConfig = DecoderConfig()

    def __post_init__(self) -> None:
        if self.encoder.out_dim != self.decoder.dim:
            raise ValueError(f"encoder.out_dim {self.encoder.out_dim} is not decoder.dim {self.decoder.dim}")


class MobileSam(nn.Module):
    def __init__(self, config: MobileSamConfig = MobileSamConfig()) -> None:
        super().__init__()
        self.image_encoder = TinyViT(config.encoder)
        self.prompt_encoder = PromptEncoder(config.decoder.dim)
        self.mask_decoder = MaskDecoder(config.decoder)

    def encode(self, pictures: Tensor) -> Tensor:
        """Normalised pictures [n, 3, 16 h, 16 w] -> embedding [n, dim, h, w]"""
        return self.image_encoder(pictures)

    def segment(self, embedding: Tensor, boxes_unit: Tensor) -> tuple[Tensor, Tensor]:
        """Embedding [n, dim, h, w] and a box for each [n, 4] -> masks [n, 4, 4 h, 4 w] logits, iou [n, 4]"""
        positions = self.prompt_encoder.pe_layer.grid(*embedding.shape[2:])
        no_mask = self.prompt_encoder.no_mask_embed.weight[:, :, None, None]
        return self.mask_decoder(embedding + no_mask, positions, self.prompt_encoder(boxes_unit))
