"""Index: videos are encoded once and asked many times."""

from lastseen.index.catalogue import IndexedVideo
from lastseen.index.folder import default_folder
from lastseen.index.index import Index

__all__ = ["Index", "IndexedVideo", "default_folder"]
