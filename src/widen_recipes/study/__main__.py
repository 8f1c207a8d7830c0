"""Write the data of Countdown; with a second argument, also grow data from it."""

import sys

from .countdown import write_countdown
from .grow import make_grown
from .methods import path_of

if __name__ == "__main__":
    write_countdown(sys.argv[1])
    if len(sys.argv) > 2:
        make_grown(sys.argv[1], path_of("WIDEN_GROWN"), sys.argv[2])
