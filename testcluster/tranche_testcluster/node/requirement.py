"""Requirements of real nodes on the machine."""

import os
import shutil
import subprocess
from pathlib import Path

from ..binaries.debian_package import CONTAINERD, find
from .cgroup import hierarchies

_TOOLS = ("buildah", "ip", "iptables-save", "mount", "nsenter", "sysctl", "tc", "unshare")
_NAMESPACES = ("unshare", "--mount", "--net", "--propagation", "private", "--pid", "--fork", "--mount-proc")
_MOUNT = ("mount", "--no-mtab", "-t", "tmpfs", "none", "/run")  # without a record, which would be in /run/mount


def unavailable() -> str:
    """Return why this machine cannot run real nodes; empty if it can."""
    if os.geteuid() != 0:
        return "real nodes require root"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"real nodes require {', '.join(missing)}"
    if find(CONTAINERD) is None and shutil.which("apt-get") is None:
        return "real nodes require containerd, runc and CNI plugins, which are taken from Debian packages"
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        return "real nodes require overlayfs"
    if not hierarchies():
        return "real nodes require control groups at /sys/fs/cgroup"
    tried = subprocess.run([*_NAMESPACES, *_MOUNT], capture_output=True, text=True, check=False)  # noqa: S603
    return f"real nodes require namespaces: {tried.stderr.strip()}" if tried.returncode else ""
