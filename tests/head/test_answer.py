"""Numbers on their way from the device; here one that only says it is a GPU."""

import torch

from widen.head.answer import Answer


class OnDevice(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True


def test_an_answer_waits_for_its_own_device_and_its_room_outlives_inference_mode(monkeypatch):
    recorded, empty = [], torch.empty

    class Event:
        def record(self, stream):
            recorded.append(stream)

        def synchronize(self):
            recorded.append("waited")

    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory, **kw: empty(*shape, **kw))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(Answer, "_spare", {})
    with torch.inference_mode():
        assert Answer(torch.tensor([1, 2]).as_subclass(OnDevice)).read() == [1, 2]
    assert recorded == ["stream of cpu", "waited"]
    first = Answer(torch.tensor([3, 4]).as_subclass(OnDevice))  # in the room of the one before
    second = Answer(torch.tensor([5, 6]).as_subclass(OnDevice))
    assert (second.read(), first.read(), first.read()) == ([5, 6], [3, 4], [3, 4])
    assert [len(kept) for kept in Answer._spare.values()] == [2]
