"""Many machines: an index in shards, filled and asked through Ray (`pip install 'lastseen[ray]'`)."""

from lastseen.cluster.cluster import Cluster
from lastseen.cluster.worker import ModelChoice, Outcome

__all__ = ["Cluster", "ModelChoice", "Outcome"]
