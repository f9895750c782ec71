"""`python -m qtool` is the command `qtool`."""

import sys

from qtool.cli.main import main

sys.exit(main())
