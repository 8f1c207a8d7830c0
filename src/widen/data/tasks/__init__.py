"""The paper's data sets and your own: records -> prompt and completion -> tokens. No torch here.

TASKS, task(name)                                  the tasks
read(name, source, split=, limit=)                 a file, a folder or a hub data set -> examples, and what is wrong with the rest
encode(example, tokenizer, max_length=)            tokens and labels
"""

from .definition import Example, Task
from .encoding import IGNORED, Encoded, encode
from .reading import TASKS, Read, listed, read, task
from .text_tasks import spellings

__all__ = ["IGNORED", "TASKS", "Encoded", "Example", "Read", "Task", "encode", "listed", "read", "spellings", "task"]
