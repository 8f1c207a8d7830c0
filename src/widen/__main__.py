"""`python -m widen` is `widen`."""

import sys

from widen.cli.__main__ import main

sys.exit(main())
