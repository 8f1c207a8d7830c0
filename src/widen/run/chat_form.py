"""Whether a model is asked in the form that it was trained on: through its chat template, or with plain texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .finetune.model_files import load_tokenizer
from .folder import RunFolder


def form_note(model: str, tokenizer: Any, *, chat: bool) -> str:
    """A warning if the prompts are not in the form that the model was trained on; "" if they are, or nothing is known."""
    trained = bool(getattr(tokenizer, "chat_template", None))
    if (inputs := Path(model) / "inputs.json").is_file():
        trained = bool(RunFolder(model).read(inputs).get("chat", trained))
        if chat and not trained:
            return f"{model} was trained on texts without a chat template: with --chat it is asked in another form"
    if trained and not chat:
        return f"{model} has a chat template, but these prompts go in without it. Use --chat if it is an Instruct model"
    return ""


def check_form(model: str, *, chat: bool) -> str:
    """The warning of `form_note`; with ``chat``, a model without a chat template is refused."""
    tokenizer = load_tokenizer(model)
    if chat and not getattr(tokenizer, "chat_template", None):
        raise ValueError(f"chat=True: {model} has no chat template: take an Instruct model, or leave chat (--chat) out")
    return form_note(model, tokenizer, chat=chat)
