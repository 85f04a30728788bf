"""`python3 -I eval/ MANIFEST …`: the folder is the program."""

from kbslurm_eval.run import main

raise SystemExit(main())
