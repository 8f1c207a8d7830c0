"""A plug-in file for ms-swift. Start it with:

swift sft --external_plugins ms_swift.py --loss_type widen --model HuggingFaceTB/SmolLM2-135M-Instruct --dataset my_chats.jsonl
"""

from widen.hosts.ms_swift import register

register("cdiv:alpha=1.4")
