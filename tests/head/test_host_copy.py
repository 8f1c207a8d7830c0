"""Asynchronous copies to the host, here from a tensor that only says that it is on a GPU."""

import torch

from widen.head import HostCopy


class OnDevice(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True


def test_a_copy_waits_for_its_own_device_and_its_memory_outlives_inference_mode(monkeypatch):
    recorded, empty = [], torch.empty

    class Event:
        def record(self, stream):
            recorded.append(stream)

        def synchronize(self):
            recorded.append("waited")

    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory, **kw: empty(*shape, **kw))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(HostCopy, "_spare", {})
    with torch.inference_mode():
        assert HostCopy(torch.tensor([1, 2]).as_subclass(OnDevice)).read() == [1, 2]
    assert recorded == ["stream of cpu", "waited"]
    first = HostCopy(torch.tensor([3, 4]).as_subclass(OnDevice))  # in the memory of the one before
    second = HostCopy(torch.tensor([5, 6]).as_subclass(OnDevice))
    assert (second.read(), first.read(), first.read()) == ([5, 6], [3, 4], [3, 4])
    assert [len(kept) for kept in HostCopy._spare.values()] == [2]
