"""COCO: annotations of a video's frames, and detection results that refer to them.

Images are frames of the video, numbered as if all had been saved: `frame_id` from 0, `id` from 1.
"""

from __future__ import annotations

import json
from typing import Any

from lastseen.answer import Answer
from lastseen.formats.answer_json import PlacedBox, placed

CATEGORY_ID, VIDEO_ID = 1, 1


def coco(answer: Answer) -> str:
    """Annotations, with the fields for video (videos, video_id, frame_id, instance_id) of CocoVID."""
    video = answer.video
    images: dict[int, dict[str, Any]] = {}
    annotations: list[dict[str, Any]] = []
    for instance, track in enumerate(answer.sightings, 1):
        for box in placed(video, track):
            images[box.frame] = {
                "id": box.frame + 1,
                "file_name": f"{video.path.stem}/{box.frame:06d}.jpg",
                "width": video.width,
                "height": video.height,
                "video_id": VIDEO_ID,
                "frame_id": box.frame,
                "time": round(box.time_s, 6),
            }
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": box.frame + 1,
                    "video_id": VIDEO_ID,
                    "category_id": CATEGORY_ID,
                    "instance_id": instance,
                    "bbox": _bbox(box),
                    "area": round(box.width * box.height, 3),
                    "segmentation": [],
                    "iscrowd": 0,
                    "score": track.score,
                }
            )
    content = {
        "info": {"description": f"lastseen: {answer.model}" if answer.model else "lastseen"},
        "licenses": [],
        "videos": [
            {
                "id": VIDEO_ID,
                "name": video.path.name,
                "width": video.width,
                "height": video.height,
                "fps": video.fps,
            }
        ],
        "categories": [{"id": CATEGORY_ID, "name": answer.label, "supercategory": ""}],
        "images": [images[frame] for frame in sorted(images)],
        "annotations": annotations,
    }
    return json.dumps(content) + "\n"


def coco_results(answer: Answer) -> str:
    """The list that COCO's evaluation takes; image and category ids are those of `coco`."""
    content = [
        {
            "image_id": box.frame + 1,
            "category_id": CATEGORY_ID,
            "bbox": _bbox(box),
            "score": track.score,
        }
        for track in answer.sightings
        for box in placed(answer.video, track)
    ]
    return json.dumps(content) + "\n"


def _bbox(box: PlacedBox) -> list[float]:
    return [round(v, 3) for v in (box.x, box.y, box.width, box.height)]
