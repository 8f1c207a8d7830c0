"""What this machine has: versions, devices, and which optional parts of widen work here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("--json", action="store_true", help="print JSON, as env.json of a run folder holds it")


def main(options: argparse.Namespace) -> int:
    """Print the environment."""
    from widen.run.environment import environment

    found = environment()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    console = Console()
    machine = Table(title="widen env", title_justify="left", show_header=False)
    machine.add_row("python", f"{found['python']}, {found['system']}, {found['cores']} cores")
    machine.add_row(
        "devices", ", ".join(found["devices"]) + f" (CUDA {found['cuda']})" if found["devices"] else "no GPU"
    )
    for name, version in found["packages"].items():
        machine.add_row(name, version)
    console.print(machine)
    parts = Table(title="what works here", title_justify="left")
    for header in ("part", "here", "needs"):
        parts.add_column(header)
    for part, works, needs in _parts(found):
        parts.add_row(part, "yes" if works else "no", "" if works else escape(needs))
    console.print(parts)
    return 0


def _parts(found: dict[str, Any]) -> Iterator[tuple[str, bool, str]]:
    def has(*names: str) -> bool:
        return all(find_spec(name) is not None for name in names)

    yield "losses, theory, the integer task", True, ""
    yield (
        "the fused head as Triton kernels (elsewhere it runs in chunks of torch)",
        bool(found["devices"]) and has("triton"),
        ("a CUDA device and triton"),
    )
    yield "real models: train, sample, embed", has("transformers", "accelerate"), "pip install 'widen[hf]'"
    yield "LoRA", has("peft"), "pip install 'widen[hf]'"
    yield "TRL's SFTTrainer", has("trl"), "pip install 'widen[trl]'"
    yield "pages and figures", has("plotly", "jinja2"), "pip install 'widen[report]'"
    yield "programs judged in a sandbox", found["sandbox"] is not None, "bubblewrap (apt-get install bubblewrap)"
    yield "vLLM in this process", has("vllm"), "pip install vllm"
