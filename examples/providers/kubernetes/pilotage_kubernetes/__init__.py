"""Batch jobs as Kubernetes jobs, by `kubectl`: orders become manifests, listings become items."""

from .adapter import Kubernetes

__all__ = ["Kubernetes"]
