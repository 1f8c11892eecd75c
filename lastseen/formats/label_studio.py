"""Label Studio: a task to import, with the tracks as predictions to correct.

It belongs to a project whose labelling interface is `INTERFACE` (docs/formats.md).
"""

from __future__ import annotations

import json
from typing import Any

from lastseen.formats.answer import Answer, Source, frame_count, placed
from lastseen.track import ResponseTrack

INTERFACE = """\
<View>
  <Labels name="label" toName="video"><Label value="thing"/></Labels>
  <Video name="video" value="$video" framerate="$fps"/>
  <VideoRectangle name="box" toName="video"/>
</View>
"""


def label_studio(answer: Answer) -> str:
    """Frames count from 1, boxes are in percent of the picture, and `time` is frame / fps."""
    video = answer.video
    results = [
        {
            "id": f"track{number}",
            "type": "videorectangle",
            "from_name": "box",
            "to_name": "video",
            "score": track.score,
            "value": {
                "framesCount": frame_count(video),
                "duration": round(video.duration_s, 6),
                "sequence": _sequence(video, track),
                "labels": [answer.label],
            },
        }
        for number, track in enumerate(answer.tracks, 1)
    ]
    prediction = {
        "model_version": answer.model or "lastseen",
        "score": max((track.score for track in answer.tracks), default=0.0),
        "result": results,
    }
    task = {"data": {"video": str(video.path), "fps": video.fps}, "predictions": [prediction]}
    return json.dumps([task]) + "\n"


def _sequence(video: Source, track: ResponseTrack) -> list[dict[str, Any]]:
    """Keyframes; Label Studio interpolates up to the first disabled one, where the thing leaves."""
    keyframes = placed(video, track)
    return [
        {
            "frame": box.frame + 1,
            "enabled": box is not keyframes[-1],
            "rotation": 0,
            "x": round(100 * box.x / video.width, 4),
            "y": round(100 * box.y / video.height, 4),
            "width": round(100 * box.width / video.width, 4),
            "height": round(100 * box.height / video.height, 4),
            "time": round((box.frame + 1) / video.fps, 6),
        }
        for box in keyframes
    ]
