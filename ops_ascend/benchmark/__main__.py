"""`python -m ops_ascend.benchmark`."""

import sys

from ops_ascend.benchmark.command_line import main

if __name__ == "__main__":
    sys.exit(main())
