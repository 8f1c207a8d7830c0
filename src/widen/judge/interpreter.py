"""The Python that judged programs run under, and which of its files the sandbox shows.

The sandbox shows the standard library of the base interpreter at its own path, the system's shared libraries, and the
named packages. Programs can neither import nor read any other installed package: it might hold a benchmark's answers.
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
import importlib.metadata, importlib.util, json, os, pathlib, sys, sysconfig
found = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        found[name] = None
        continue
    folder = pathlib.Path(list(spec.submodule_search_locations)[0]).resolve()
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    libs = folder.parent / (name + ".libs")
    found[name] = [str(folder), str(libs) if libs.is_dir() else None, version]
base = getattr(sys, "_base_executable", None) or sys.executable
paths = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix, "installed_base": sys.base_prefix}
paths["installed_platbase"] = sys.base_exec_prefix
libraries = {os.path.realpath(sysconfig.get_path(name, vars=paths)) for name in ("stdlib", "platstdlib")}
print(json.dumps({"executable": os.path.realpath(base), "prefix": os.path.realpath(sys.base_prefix),
                  "libraries": sorted(libraries), "version": list(sys.version_info[:3]), "found": found}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A base interpreter and packages.

    `versions` are those that a verdict depends on. `binds` are pairs (host path, path inside), all read-only. `hidden`
    are folders inside that appear empty.
    """

    executable: str
    versions: dict[str, str]
    packages: tuple[str, ...]
    binds: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]


def find_interpreter(python: str | None, packages: tuple[str, ...]) -> Interpreter:
    """Ask `python` (default: the running one) for its files and the named packages; refuse if a package is missing."""
    asked = python or sys.executable
    try:
        # The user chose this interpreter, so it may run outside the sandbox; -I ignores environment and working folder.
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
    base = _base_binds(about["executable"], about["prefix"], about["libraries"])
    binds = [(str(_HERE / "inside"), f"{CODE}/inside"), *base]
    for name, (folder, libs, _) in about["found"].items():
        binds.append((folder, f"{SITE}/{name}"))
        if libs is not None:
            binds.append((libs, f"{SITE}/{name}.libs"))
    return Interpreter(
        executable=about["executable"],
        versions={
            "python": ".".join(map(str, about["version"])),
            **{name: place[2] for name, place in about["found"].items()},
        },
        packages=packages,
        binds=tuple(binds),
        hidden=_installed(base),
    )


def _base_binds(executable: str, prefix: str, libraries: list[str]) -> list[tuple[str, str]]:
    """Return the system's shared libraries, the standard library and the executable.

    Debian keeps shared libraries in a folder per architecture, so the rest of /usr/lib stays outside. Other systems
    keep them in /usr/lib64 or in /usr/lib itself.
    """
    native = [str(path) for path in sorted(Path("/usr/lib").glob("*-linux-gnu*"))]
    wanted = [*(native or ["/usr/lib"]), "/usr/lib64", "/usr/lib/locale", "/usr/share/zoneinfo"]
    wanted += ["/etc/alternatives", "/etc/ld.so.cache"]
    wanted += [path for path in ("/lib", "/lib64") if Path(path).is_dir() and not Path(path).is_symlink()]
    if prefix != "/usr":
        wanted += [str(path) for path in sorted(Path(prefix, "lib").glob("*.so*"))]
    wanted += [path for path in libraries if not any(Path(path).is_relative_to(other) for other in wanted)]
    return [(path, path) for path in (*wanted, executable) if Path(path).exists()]


def _installed(binds: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return the folders of installed packages inside the bound folders; the sandbox shows them empty."""
    found = set()
    for source, inside in binds:
        for below in ("", "*/", "*/*/"):
            for name in ("site-packages", "dist-packages"):
                folders = [path for path in Path(source).glob(below + name) if path.is_dir() and not path.is_symlink()]
                found |= {f"{inside}/{path.relative_to(source)}" for path in folders}
    return tuple(sorted(found))
