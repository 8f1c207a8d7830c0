"""One step of a tiny model by the definition of a loss, for the tests of the plug-ins."""

import copy

import torch

from widen.data.targets import read_sequences
from widen.losses import parse, weighted_nll
from widen.train.objective import Objective


def flat(model):
    return torch.cat([p.grad.flatten() for _, p in sorted(model.named_parameters())])


def token_logq(model, batch):
    logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][:, 1:]
    logq = logits[:, :-1].float().log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return logq, labels != -100


def by_definition(model, batches, loss):
    """The gradient of one step over the micro-batches, in plain PyTorch."""
    model, weight = copy.deepcopy(model), parse(loss)
    model.zero_grad()
    count = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
    for batch in batches:
        logq, mask = token_logq(model, batch)
        weighted_nll(logq, mask, weight, weight.init(), num_tokens=count)[0].backward()
    return flat(model)


def through_our_head(model, batches, loss):
    """The gradient of one step by the fused head, for losses that are no weight times -log q."""
    model = copy.deepcopy(model)
    model.zero_grad()
    columns = ["ref_logq"] if "ref_logq" in batches[0] else []
    found = [read_sequences(batch, columns=columns) for batch in batches]
    count = sum(int(one.mask_N.sum()) for one in found)
    for batch, sequences in zip(batches, found, strict=True):
        hidden = model.model(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        Objective(parse(loss)).through_head(
            hidden.flatten(0, 1), model.lm_head.weight, sequences, num_tokens=count
        ).loss.backward()
    return flat(model)


def verl_batch(model, examples, *, count, dp_size=1):
    """What verl's engine hands to a loss: nested tensors, the last log-probability of a sequence about nothing."""
    log_probs, masks = [], []
    for row in examples:
        ids = torch.tensor([row["input_ids"]])
        logq = model(ids).logits[0].float().log_softmax(-1)
        log_probs.append(logq.gather(-1, ids.roll(-1, 1)[0, :, None])[:, 0])
        masks.append(torch.tensor([label != -100 for label in row["labels"]]).long())
    nested = [torch.nested.as_nested_tensor(x, layout=torch.jagged) for x in (log_probs, masks)]
    return {"log_probs": nested[0]}, {"loss_mask": nested[1], "batch_num_tokens": count, "dp_size": dp_size}
