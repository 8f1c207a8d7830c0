"""Write the data of a task of the study; the top of its module shows the command."""

import sys

from .countdown import write_countdown
from .coverageqa import write_coverageqa
from .e2e import write_e2e
from .grow import make_grown
from .methods import path_of

if __name__ == "__main__":
    if sys.argv[1] == "coverageqa":
        write_coverageqa(*sys.argv[2:4])
    elif sys.argv[1] == "e2e":
        write_e2e(*sys.argv[2:4])
    else:
        write_countdown(sys.argv[1])
        if len(sys.argv) > 2:
            make_grown(sys.argv[1], path_of("WIDEN_GROWN"), sys.argv[2])
