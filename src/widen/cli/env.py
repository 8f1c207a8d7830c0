"""What this machine has: versions, devices, and which optional parts of widen work here."""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.markup import escape

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
    parts = [(part, "yes" if works else "no", "" if works else escape(needs)) for part, works, needs in _parts(found)]
    console.print(table_of("what works here", ("part", "here", "needs"), parts, left=(0, 1, 2)))
    return 0


def _parts(found: dict[str, Any]) -> list[tuple[str, bool, str]]:
    def has(*names: str) -> bool:
        return all(find_spec(name) is not None for name in names)

    fused = "the fused head as Triton kernels (elsewhere it runs in chunks of torch)"
    return [
        ("losses, theory, the integer task", True, ""),
        (fused, bool(found["devices"]) and has("triton"), "a CUDA device and triton"),
        ("real models: train, sample, embed", has("transformers", "accelerate"), "pip install 'widen[hf]'"),
        ("LoRA", has("peft"), "pip install 'widen[hf]'"),
        ("TRL's SFTTrainer", has("trl"), "pip install 'widen[trl]'"),
        ("pages and figures", has("plotly", "jinja2"), "pip install 'widen[report]'"),
        ("programs judged in a sandbox", found["sandbox"] is not None, "bubblewrap (apt-get install bubblewrap)"),
        ("vLLM in this process", has("vllm"), "pip install vllm"),
    ]
