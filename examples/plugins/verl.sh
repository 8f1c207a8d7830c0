#!/bin/sh
# verl's SFT trainer with a loss of widen: the module after -m and the last line are new.
torchrun --standalone --nproc_per_node=8 -m widen.hosts.verl \
  model.path=HuggingFaceTB/SmolLM2-135M-Instruct \
  data.train_files=my_chats.parquet \
  engine=fsdp \
  trainer.total_epochs=1 \
  '+widen.loss="cdiv:alpha=1.4"'
