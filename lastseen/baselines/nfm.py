"""NFM, "Negative Frames Matter" (Xu et al. 2022): SiamRCNN that also learns from frames without the thing.

The network is SiamRCNN's. Training differs: for every frame of the response track, the frame one track's
length later is a negative; and the whole detector is tuned, at a tenth of the head's rate, with the
proposals' losses.
"""

from __future__ import annotations

from lastseen.baselines.detector import DetectorConfig
from lastseen.baselines.siamrcnn import SiamRCNN

DETECTOR_LR_FACTOR = 0.1  # of backbone, pyramid and proposals


class NFMConfig(DetectorConfig):
    kind = "nfm"


class NFM(SiamRCNN):
    name = "NFM"


def negative_frame(frame: int, first: int, last: int, query_frame: int) -> int | None:
    """The frame one length of the response track [first, last] after a frame of it, if it comes before the
    question. The thing is absent there: the response track is its last occurrence before the question."""
    later = frame + last - first + 1
    return later if later < query_frame else None
