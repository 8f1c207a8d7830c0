"""Show versions, devices, and which optional parts of widen work on this machine."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.markup import escape

from widen.needs import fault

from .show import table_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("--json", action="store_true", help="print JSON, as in env.json of a run folder")


def main(options: argparse.Namespace) -> int:
    """Print the environment."""
    from widen.run.environment import environment

    found = environment()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    console = Console()
    devices = ", ".join(found["devices"]) + f" (CUDA {found['cuda']})" if found["devices"] else "no GPU"
    machine = {"python": f"{found['python']}, {found['system']}, {found['cores']} cores", "devices": devices}
    rows = (machine | found["packages"]).items()
    console.print(table_of("widen env", ("", ""), rows, left=(0, 1), show_header=False))
    parts = [(part, "no" if needs else "yes", escape(needs)) for part, needs in _parts(found)]
    console.print(table_of("what works here", ("part", "here", "needs"), parts, left=(0, 1, 2)))
    return 0


def _parts(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Each part, and what it lacks here."""
    kernels = "" if found["devices"] and find_spec("triton") else "a CUDA device and triton"
    trainer = _import_fault("widen.hosts.transformers")
    return [
        ("losses, theory, the integer task", ""),
        ("the fused head as Triton kernels (elsewhere it runs in chunks of torch)", kernels),
        ("Transformers' Trainer", trainer),
        ("TRL's SFTTrainer", _import_fault("widen.hosts.trl")),
        ("widen train", trainer or fault("widen train") or ""),
        ("LoRA", fault("LoRA") or _import_fault("peft")),
        ("tasks of lm-evaluation-harness", fault("lm-eval tasks") or _import_fault("lm_eval")),
        ("pages", _import_fault("plotly", "jinja2", install="pip install 'widen[report]'")),
        ("programs judged in a sandbox", "" if found["sandbox"] else "bubblewrap (apt-get install bubblewrap)"),
        ("vLLM in this process", "" if find_spec("vllm") else "pip install vllm"),
    ]


def _import_fault(*modules: str, install: str = "") -> str:
    """Why an import fails, in one line; "" if it works. Only an import tells."""
    try:
        for module in modules:
            import_module(module)
    except Exception as error:  # a broken package may raise anything
        return install or (str(error).splitlines() or [type(error).__name__])[0]
    return ""
