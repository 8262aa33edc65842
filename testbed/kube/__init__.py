"""A cluster in a box: the few calls of Kubernetes' API that `kubectl` needs for jobs and pods.

It is no Kubernetes. It speaks its API as far as jobs go, and really runs what they say: each pod is
a process group on this machine, with its exit code, signals, deadline and bound of memory. Images,
volumes and nodes are words here.
"""

from testbed.kube.api import Box

__all__ = ["Box"]
