"""``widen VERB ...``: each verb is a module with ``add_arguments(parser)`` and ``main(options) -> int``.

A user's mistake ends with one sentence and status 2; a run that cannot continue ends with one sentence and status 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from widen.judge.profile import SandboxUnavailable

VERBS = {
    "demo": "two minutes on a CPU: compare data, losses and decodings on a small model",
    "run": "run a recipe (a table or figure of the paper) or your own experiment",
    "advise": "find the best loss and decoding for your model, data and wish",
    "train": "fine-tune a model on your data, or train a small one",
    "grow": "add a model's own right answers to the training data, and train on them",
    "merge": "average the weights of several models (WiSE-FT, soups)",
    "sample": "draw samples from a model or a server",
    "score": "score samples: precision, recall, pass@k, coverage",
    "report": "write one page that compares runs",
    "explore": "write an interactive page about the theory and the losses",
    "figures": "draw the figures of the paper as PDF, SVG and PNG",
    "curve": "print the exact precision-recall curve of two distributions",
    "env": "show versions, devices, and which parts of widen work here",
}
MODULES = {"demo": "run_demo", "report": "write_page", "figures": "draw_figures", "curve": "exact_curve"}
"""Verbs whose module has another name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Call the verb and turn its errors into sentences."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # for a user's own loss, module:Class(...)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        close = get_close_matches(arguments[0], VERBS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        print(f"widen: no verb is called {arguments[0]!r}{hint} Verbs: {', '.join(VERBS)}", file=sys.stderr)
        return 2
    if arguments and arguments[0] in VERBS:
        return _call(arguments[0], arguments[1:])
    _overview().parse_args(arguments)
    _overview().print_help()
    return 0


def _overview() -> argparse.ArgumentParser:
    from widen import __version__

    lines = "\n".join(f"  {verb:8} {text}" for verb, text in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="widen",
        usage="widen VERB [options]",
        description="Get more different right answers out of language models.",
        epilog=f"verbs:\n{lines}\n\n`widen VERB --help` explains a verb. Start with `widen demo`.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"widen {__version__}")
    return parser


def _call(verb: str, arguments: list[str]) -> int:
    module = import_module(f"widen.cli.{MODULES.get(verb, verb)}")
    parser = argparse.ArgumentParser(
        prog=f"widen {verb}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        _refuse_device(options)
        return int(module.main(options))
    except (ValueError, FileNotFoundError, FileExistsError, ImportError) as error:
        text = str(error)
        if isinstance(error, FileNotFoundError) and error.filename is not None:
            text = f"there is no file {error.filename}"  # the system's own text begins with a number
        print(f"widen {verb}: {text}", file=sys.stderr)
        return 2
    except SandboxUnavailable as error:
        print(f"widen {verb}: programs and checkers run in a sandbox only: {error}", file=sys.stderr)
        return 2
    except (OSError, FloatingPointError) as error:  # disk full, no permission; a gradient that is not finite
        print(f"widen {verb}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nwiden {verb}: stopped; run the same command again to continue", file=sys.stderr)
        return 130


def _refuse_device(options: argparse.Namespace) -> None:
    """Refuse a device that is not here before the verb makes anything; ``widen train --print`` makes nothing."""
    if getattr(options, "device", None) not in (None, "cpu") and not getattr(options, "print", False):
        from widen.run.finetune.defaults import device_for

        device_for(options.device)


if __name__ == "__main__":
    sys.exit(main())
