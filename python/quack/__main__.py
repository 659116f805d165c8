"""`python -m quack` is the `quack` command."""

from __future__ import annotations

import sys

from quack.cli.main import main

sys.exit(main())
