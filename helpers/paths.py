"""Where things live, and how a file is replaced.

Everything that is read or written derives from one data folder: `data/` of the repository, or of the folder that Python
was started in if the package is installed without its repository. The variable `L2G_DATA` names another one.
"""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent if (PACKAGE.parent / "pyproject.toml").exists() else Path.cwd()
ELSEWHERE = os.environ.get("L2G_DATA")  # unset or empty: the repository's own

DATA = Path(ELSEWHERE).expanduser().absolute() if ELSEWHERE else ROOT / "data"
PAPER_TABLES = DATA / "paper_tables.csv"  # the numbers that the paper prints
REAL = DATA / "real"  # statistics of the S&P 100 and ABIDE, shipped
RAW = DATA / "raw"  # what `l2g data --download` fetches
CHECKPOINTS = DATA / "checkpoints"
RESULTS = DATA / "results"
FIGURES = DATA / "figures" if ELSEWHERE else ROOT / "figures"
WEIGHTS = PACKAGE / "weights"  # the networks that GraphLearner ships with, part of the package

CHECK = bool(os.environ.get("L2G_CHECK"))  # notebooks compare their results with the stored ones and write nothing


def write_atomically(path, content):
    """Write bytes so that `path` holds either its old content or all of the new one, whenever the power goes."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
