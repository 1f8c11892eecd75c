"""Our DINOv2 against an independent one (transformers), with the same weights."""

import pytest
import torch
from transformers import Dinov2Config, Dinov2Model, Dinov2WithRegistersConfig, Dinov2WithRegistersModel

from lastseen.model import Backbone, BackboneConfig
from lastseen.weights import load_backbone

SIZES = {
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 518,
    "patch_size": 14,
}


def theirs(registers: int, swiglu: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    if registers:
        config = Dinov2WithRegistersConfig(**SIZES, num_register_tokens=registers, use_swiglu_ffn=swiglu)
        model = Dinov2WithRegistersModel(config)
    else:
        model = Dinov2Model(Dinov2Config(**SIZES, use_swiglu_ffn=swiglu))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


def renamed(state: dict[str, torch.Tensor], depth: int) -> dict[str, torch.Tensor]:
    """transformers' names -> DINOv2's."""
    ours = {
        "cls_token": state["embeddings.cls_token"],
        "pos_embed": state["embeddings.position_embeddings"],
        "patch_embed.proj.weight": state["embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": state["embeddings.patch_embeddings.projection.bias"],
        "norm.weight": state["layernorm.weight"],
        "norm.bias": state["layernorm.bias"],
    }
    if "embeddings.register_tokens" in state:
        ours["register_tokens"] = state["embeddings.register_tokens"]
    for i in range(depth):
        block, layer = f"blocks.{i}.", f"encoder.layer.{i}."
        for kind in ("weight", "bias"):
            their = {key.removeprefix(layer): v for key, v in state.items() if key.startswith(layer)}
            for name in ("norm1", "norm2"):
                ours[f"{block}{name}.{kind}"] = their[f"{name}.{kind}"]
            qkv = [their[f"attention.{part}_proj.{kind}"] for part in "qkv"]
            ours[f"{block}attn.qkv.{kind}"] = torch.cat(qkv)
            ours[f"{block}attn.proj.{kind}"] = their[f"attention.o_proj.{kind}"]
            if f"mlp.fc1.{kind}" in their:
                ours[f"{block}mlp.fc1.{kind}"] = their[f"mlp.fc1.{kind}"]
                ours[f"{block}mlp.fc2.{kind}"] = their[f"mlp.fc2.{kind}"]
            else:
                gate_and_up = [their[f"mlp.{part}_proj.{kind}"] for part in ("gate", "up")]
                ours[f"{block}mlp.w12.{kind}"] = torch.cat(gate_and_up)
                ours[f"{block}mlp.w3.{kind}"] = their[f"mlp.down_proj.{kind}"]
        for number in (1, 2):
            ours[f"{block}ls{number}.gamma"] = their[f"layer_scale{number}.lambda1"]
    return ours


@torch.no_grad()
@pytest.mark.parametrize(
    ("registers", "swiglu", "size"), [(0, False, (518, 518)), (0, True, (518, 518)), (4, False, (224, 336))]
)
def test_features_agree_with_transformers(registers, swiglu, size):
    reference = theirs(registers, swiglu)
    ffn = "swiglu" if swiglu else "mlp"
    config = BackboneConfig(dim=96, depth=3, heads=3, registers=registers, ffn=ffn)
    backbone = Backbone(config)
    backbone.load_state_dict(renamed(reference.state_dict(), 3), strict=True)
    pictures = torch.randn(2, 3, *size)
    expected = reference(pictures).last_hidden_state[:, 1 + registers :]
    got = backbone(pictures).flatten(2).transpose(1, 2)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_features_of_any_blocks_are_concatenated():
    torch.manual_seed(0)
    base = BackboneConfig(dim=32, depth=4, heads=2)
    state = Backbone(base).state_dict()
    picture = torch.randn(1, 3, 56, 84)

    def features(*blocks: int, final_norm: bool = True) -> torch.Tensor:
        backbone = Backbone(base.using(*blocks, final_norm=final_norm))
        backbone.load_state_dict(state)
        return backbone(picture)

    both = features(1, 3)
    assert both.shape == (1, 64, 4, 6)
    torch.testing.assert_close(both[:, :32], features(1))
    torch.testing.assert_close(both[:, 32:], features(-1))
    assert not torch.allclose(features(1), features(1, final_norm=False))


def test_a_block_that_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match=r"0\.\.11"):
        BackboneConfig(dim=384, depth=12, heads=6, blocks=(12,))


@torch.no_grad()
def test_the_bundled_backbone_has_the_shape_it_says():
    backbone = load_backbone(blocks=(6,), final_norm=False)
    assert (backbone.config.dim, backbone.config.depth, backbone.config.registers) == (384, 12, 4)
    assert backbone(torch.zeros(1, 3, 112, 56)).shape == (1, 384, 8, 4)
