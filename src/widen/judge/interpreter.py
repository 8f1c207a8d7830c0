"""The Python that judged programs see: which files of it go into the sandbox, read-only, and nothing else of its
environment.

A virtual environment is only a list of packages on top of a base interpreter, so the base is bound at its own path
and, of the site-packages, the named packages alone: programs can import numpy and scipy and cannot import, or read,
what else is installed there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SITE = "/widen/site"
CODE = "/widen/code"
_HERE = Path(__file__).resolve().parent

_DESCRIBE = """
import importlib.util, json, os, pathlib, sys
found = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        found[name] = None
        continue
    folder = pathlib.Path(list(spec.submodule_search_locations)[0]).resolve()
    version = ""
    try:
        from importlib.metadata import version as v
        version = v(name)
    except Exception:
        pass
    libs = folder.parent / (name + ".libs")
    found[name] = [str(folder), str(libs) if libs.is_dir() else None, version]
base = getattr(sys, "_base_executable", None) or sys.executable
place = {"executable": os.path.realpath(base), "prefix": os.path.realpath(sys.base_prefix)}
print(json.dumps({**place, "version": list(sys.version_info[:3]), "found": found}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A base interpreter and packages: `binds` are (host path, path inside), all read-only."""

    executable: str
    version: str
    packages: tuple[str, ...]
    package_versions: tuple[str, ...]
    binds: tuple[tuple[str, str], ...]

    def fingerprint(self) -> dict[str, str]:
        """What of it a verdict depends on."""
        return {"python": self.version, **dict(zip(self.packages, self.package_versions, strict=True))}


def find_interpreter(python: str | None, packages: tuple[str, ...]) -> Interpreter:
    """Ask `python` (default: the running one) for its base and for the named packages; refuse if one is missing."""
    asked = python or sys.executable
    try:
        # The interpreter is the user's own; it is asked outside the sandbox, isolated from the environment and the
        # working folder.
        run = subprocess.run(
            [asked, "-I", "-c", _DESCRIBE, *packages], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"python={asked!r}: not a Python interpreter that runs ({error})") from None
    about = json.loads(run.stdout)
    if tuple(about["version"]) < (3, 9, 0):
        raise ValueError(f"python={asked!r}: version {about['version']}, at least 3.9 is needed")
    missing = [name for name, place in about["found"].items() if place is None]
    if missing:
        raise ValueError(
            f"python={asked!r} has no {', '.join(missing)}: install it there, or name fewer in packages={packages!r}"
        )
    binds = [(str(_HERE / "inside"), f"{CODE}/inside"), *_base_binds(about["executable"], about["prefix"])]
    for name, (folder, libs, _) in about["found"].items():
        binds.append((folder, f"{SITE}/{name}"))
        if libs is not None:
            binds.append((libs, f"{SITE}/{name}.libs"))
    return Interpreter(
        executable=about["executable"],
        version=".".join(map(str, about["version"])),
        packages=packages,
        package_versions=tuple(place[2] for place in about["found"].values()),
        binds=tuple(binds),
    )


def _base_binds(executable: str, prefix: str) -> list[tuple[str, str]]:
    """System libraries, the interpreter's own library and the one executable."""
    wanted = ["/usr/lib", "/usr/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/usr/share/zoneinfo"]
    wanted += [path for path in ("/lib", "/lib64") if Path(path).is_dir() and not Path(path).is_symlink()]
    library = f"{prefix}/lib"
    if not any(library == path or library.startswith(path + "/") for path in wanted):
        wanted.append(library)
    wanted.append(executable)
    return [(path, path) for path in wanted if Path(path).exists()]
