"""Who kills a job that takes more memory than it asked for: the kernel, or else Slurm."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

#: Where the kernel's limits are; those of later kernels, Slurm sets with systemd's help alone.
GROUPS = Path("/sys/fs/cgroup/memory")

#: Lines of slurm.conf: by the kernel, and by a look each second at what a job uses.
BY_KERNEL = "TaskPlugin=task/cgroup\n"
BY_SLURM = "TaskPlugin=task/none\nJobAcctGatherParams=OverMemoryKill\n"

#: Said also where they are not used: slurmd looks for control groups, and gives up without any.
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nConstrainRAMSpace={answer}\n"


class Memory:
    """How one cluster sees to its limits."""

    def __init__(self) -> None:
        self._by_kernel = (GROUPS / "memory.limit_in_bytes").exists()

    @property
    def end_state(self) -> str:
        """The state of a job that took too much."""
        return "OUT_OF_MEMORY" if self._by_kernel else "FAILED"

    @property
    def lines(self) -> str:
        """What slurm.conf says of it."""
        return BY_KERNEL if self._by_kernel else BY_SLURM

    @property
    def cgroup_conf(self) -> str:
        """What is in cgroup.conf."""
        return CGROUP_CONF.format(answer="yes" if self._by_kernel else "no")

    def groups(self, nodes: Iterable[str]) -> list[Path]:
        """Return the control groups that nodes make."""
        return [GROUPS / f"slurm_{name}" for name in nodes] if self._by_kernel else []
