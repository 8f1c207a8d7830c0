"""The paper's data sets and one's own: records -> prompt and completion -> tokens. Prompt and mask are decided here, once a task.

    TASKS, task(name)                                  what there is
    read(name, source, split=, limit=)                 a file, a folder, a data set of the hub -> examples, and what is wrong with the rest
    encode(example, tokenizer, max_length=)            tokens and labels

No torch here; `datasets` is loaded only where a source is a data set.
"""

from .catalogue import TASKS, task
from .definition import Example, Task
from .encoding import IGNORED, Encoded, encode
from .reading import Read, listed, read

__all__ = ["IGNORED", "TASKS", "Encoded", "Example", "Read", "Task", "encode", "listed", "read", "task"]
