"""A sampler to be killed: draws made-up samples into a folder, slowly enough that a kill finds it at work. No torch: it starts at once."""

import hashlib
import sys

from widen.sample.decoding import Decoding, Settings
from widen.sample.engine import Drawn, Identity, Sample
from widen.sample.fill import collect
from widen.sample.prompts import Prompt

PROMPTS = [Prompt(text=f"prompt {i}") for i in range(5)]
SETTINGS = [Settings(decoding=Decoding.parse(spec)) for spec in ("t=1", "t=0.5", "t=1,top_p=0.9")]
NUM = 40


class MadeUp:
    """Text is a function of setting, prompt and index, as it is for a real engine."""

    def identity(self):
        return Identity(engine="test", name="made up", model={"weights": "1"})

    def check(self, settings, prompts):
        pass

    def draw(self, prompts, settings, *, num, have):
        for setting in settings:
            for prompt in prompts:
                for start in range(0, num, 8):
                    block = [i for i in range(start, start + 8) if not have(setting, prompt.id, i)]
                    if block:
                        yield Drawn(setting, [self.sample(setting, prompt, i) for i in block])

    def sample(self, setting, prompt, index):
        text = hashlib.sha256(f"{setting.name}{prompt.id}{index}".encode()).hexdigest() * (1 + index % 40)
        return Sample(prompt.id, index, text, "stop", 1, len(text), -1.0, -1.0)


if __name__ == "__main__":
    print("ready", flush=True)
    collect(MadeUp(), PROMPTS, SETTINGS, num=NUM, folder=sys.argv[1])
    print("done", flush=True)
