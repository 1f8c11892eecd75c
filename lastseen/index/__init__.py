"""Index: videos are encoded once and asked many times.

with Index(folder, create=True) as index:
    add_file(index, localizer, "walk.mp4")                # lastseen.index.record
    search(index, localizer, {"keys": query})             # lastseen.index.search
"""

from lastseen.index.catalogue import IndexedVideo
from lastseen.index.folder import Index, default_folder

__all__ = ["Index", "IndexedVideo", "default_folder"]
