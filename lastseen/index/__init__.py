"""Index: encode videos once, search them for any number of queries."""

from lastseen.index.entry import IndexedVideo
from lastseen.index.folder import default_folder
from lastseen.index.index import Index

__all__ = ["Index", "IndexedVideo", "default_folder"]
