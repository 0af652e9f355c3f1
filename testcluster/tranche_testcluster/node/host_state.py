"""State of the machine that real nodes might change, to compare before and after."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from .cgroup import hierarchies

_SYSCTLS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_max*",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/*/*",
    "net/bridge/*",
    "net/ipv6/conf/*/*",
)
_FOLDERS = ("/etc", "/etc/cni", "/opt", "/run", "/run/containerd", "/run/netns", "/var/lib", "/var/log")
_FOLDERS_OF_NODES = ("/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/log/pods", "/var/log/containers")


@dataclass(frozen=True)
class HostState:
    """Settings, mounts, interfaces, groups and files that kubelet, containerd, runc and CNI plugins usually change."""

    sysctls: frozenset[str]
    mounts: frozenset[str]
    interfaces: frozenset[str]
    routes: frozenset[str]
    cgroups: frozenset[str]
    files: frozenset[str]

    @classmethod
    def read(cls) -> Self:
        """Return the present state."""
        return cls(
            sysctls=frozenset(
                f"{file}={_text(file)}" for pattern in _SYSCTLS for file in Path("/proc/sys").glob(pattern)
            ),
            mounts=frozenset(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
            interfaces=frozenset(path.name for path in Path("/sys/class/net").iterdir()),
            routes=frozenset(Path("/proc/net/route").read_text().splitlines()),
            cgroups=frozenset(str(path) for root in hierarchies() for path in root.iterdir() if path.is_dir()),
            files=frozenset(
                str(path)
                for folder in (*_FOLDERS, *_FOLDERS_OF_NODES)
                if Path(folder).is_dir()
                for path in Path(folder).iterdir()
            ),
        )

    def changes(self, later: "HostState") -> list[str]:
        """Return a line for each difference of a later state: ``+`` for what is new, ``-`` for what is gone."""
        lines = []
        for field in fields(self):
            before, after = getattr(self, field.name), getattr(later, field.name)
            lines += [f"-{field.name} {item}" for item in sorted(before - after)]
            lines += [f"+{field.name} {item}" for item in sorted(after - before)]
        return lines


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # some can only be written
        return ""
