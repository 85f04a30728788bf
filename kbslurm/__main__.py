"""`python -m kbslurm` is `kbslurm`."""

from kbslurm.cli import main

raise SystemExit(main())
