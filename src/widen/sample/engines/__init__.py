"""Engines that continue prompts: a local model, the paper's small Llama, completions servers, and vLLM in this process."""
