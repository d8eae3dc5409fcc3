"""`python -m helpers VERB` is the same as `l2g VERB`."""

from .experiments.cli import main

if __name__ == "__main__":  # processes that train for us import this file, too
    raise SystemExit(main())
