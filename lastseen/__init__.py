"""lastseen: where did I last see this?

from lastseen import Localizer, Query, Video
photo = Query.from_image("desk.jpg", box=(273, 133, 336, 304))
answer = Localizer.from_pretrained().ask(Video("walk.mp4"), photo)
answer.save("answer.jpg")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from lastseen.answer import Answer as Answer
    from lastseen.box import Box as Box
    from lastseen.errors import LastSeenError as LastSeenError
    from lastseen.index import Index as Index
    from lastseen.localizer import Localizer as Localizer
    from lastseen.model import VQLoC as VQLoC
    from lastseen.query import Query as Query
    from lastseen.rule import Rule as Rule
    from lastseen.track import FramePredictions as FramePredictions
    from lastseen.track import ResponseTrack as ResponseTrack
    from lastseen.video import Video as Video

# Loaded when first used, so that `import lastseen` (and `lastseen --help`) does not wait for torch.
_HOMES = {
    "Answer": "answer",
    "Box": "box",
    "FramePredictions": "track",
    "Index": "index",
    "LastSeenError": "errors",
    "Localizer": "localizer",
    "Query": "query",
    "ResponseTrack": "track",
    "Rule": "rule",
    "VQLoC": "model",
    "Video": "video",
}
__all__ = sorted(_HOMES)


def __dir__() -> list[str]:
    """The public names, also those that are not loaded yet."""
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "import_module"})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lastseen' has no attribute {name!r}")
    return getattr(import_module(f"lastseen.{_HOMES[name]}"), name)
