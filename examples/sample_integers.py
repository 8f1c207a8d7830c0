"""Draw 2,000 sequences from the paper's small Llama at three temperatures, and count the right products. The model is untrained."""

from collections import Counter

from widen.data import MulMod
from widen.models import TinyLlama
from widen.sample import UNPROMPTED, Decoding, MulModEngine, Settings

task = MulMod()
engine = MulModEngine(TinyLlama(seed=0), task)  # a trained one: widen.models.load_pretrained("runs/NAME/checkpoint")
settings = [Settings(decoding=Decoding(temperature=t)) for t in (0.02, 0.5, 1.0)]
for drawn in engine.draw([UNPROMPTED], settings, num=2_000):
    right = task.is_correct([(12, *s.ids) for s in drawn.samples]).mean()
    common, times = Counter(s.text for s in drawn.samples).most_common(1)[0]
    distinct = len({s.text for s in drawn.samples})
    print(
        f"{drawn.settings.decoding.spec:7} {right:7.3%} right, {distinct:6,} distinct, most often {common} ({times} times)"
    )
