"""CVAT for video 1.1: tracks with a keyframe at every sample, to upload to a task of the same video."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from lastseen.answer import Answer
from lastseen.files import one_line
from lastseen.formats.answer_json import PlacedBox, frame_after, frame_count, placed


def cvat(answer: Answer) -> str:
    """Frames are the video's own, from 0; CVAT interpolates between keyframes.

    A track runs on to the video's end unless a box with outside="1" says that the thing has left.
    """
    video = answer.video
    root = ET.Element("annotations")
    _text(root, "version", "1.1")
    task = ET.SubElement(ET.SubElement(root, "meta"), "task")
    _text(task, "name", video.path.stem)
    _text(task, "size", str(frame_count(video)))
    _text(task, "mode", "interpolation")
    _text(task, "start_frame", "0")
    _text(task, "stop_frame", str(frame_count(video) - 1))
    label = ET.SubElement(ET.SubElement(task, "labels"), "label")
    name = one_line(answer.label)
    _text(label, "name", name)
    _text(label, "type", "rectangle")
    ET.SubElement(label, "attributes")
    size = ET.SubElement(task, "original_size")
    _text(size, "width", str(video.width))
    _text(size, "height", str(video.height))
    _text(task, "source", video.path.name)
    for number, track in enumerate(answer.sightings):
        element = ET.SubElement(root, "track", {"id": str(number), "label": name, "source": "auto"})
        boxes = placed(video, track)
        for box in boxes:
            _box(element, box, box.frame, outside=False)
        after = frame_after(video, track)
        if after is not None:
            _box(element, boxes[-1], after, outside=True)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _box(track: ET.Element, box: PlacedBox, frame: int, *, outside: bool) -> None:
    corners = {"xtl": box.x, "ytl": box.y, "xbr": box.x + box.width, "ybr": box.y + box.height}
    ET.SubElement(
        track,
        "box",
        {
            "frame": str(frame),
            "keyframe": "1",
            "outside": str(int(outside)),
            "occluded": "0",
            **{name: f"{value:.2f}" for name, value in corners.items()},
            "z_order": "0",
        },
    )


def _text(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, name).text = one_line(text)
