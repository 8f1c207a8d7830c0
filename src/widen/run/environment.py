"""The versions and the machine that made a result; every run keeps them."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES: tuple[str, ...] = ("widen", "torch", "numpy", "scipy", "safetensors", "triton")
PACKAGES += ("transformers", "trl", "peft", "accelerate", "plotly")


def environment() -> dict[str, Any]:
    """Versions, cores and devices; no user, host or path names.

    >>> environment()["python"].startswith("3.")
    True
    """
    import torch

    cuda = torch.cuda.is_available()
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "cuda": torch.version.cuda if cuda else None,
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
        "sandbox": "bubblewrap" if shutil.which("bwrap") else None,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
