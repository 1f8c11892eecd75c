"""Masks: a segmenter that is prompted with boxes (MobileSAM). Its weights are not in the package.

image_encoder --> embedding --+
                              +--> mask_decoder --> masks, predicted IoU --> bounds
box --> prompt_encoder -------+
"""

from lastseen.masks.mobile_sam import MobileSam, MobileSamConfig
from lastseen.masks.segmenter import BoxMask, MobileSamSegmenter, Segmenter
from lastseen.masks.stored import add_mobile_sam, load_mobile_sam

__all__ = [
    "BoxMask",
    "MobileSam",
    "MobileSamConfig",
    "MobileSamSegmenter",
    "Segmenter",
    "add_mobile_sam",
    "load_mobile_sam",
]
