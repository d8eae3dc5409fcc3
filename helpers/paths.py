"""Where things live. `L2G_DATA` may name another data folder; everything else follows from the repository's root."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("L2G_DATA", ROOT / "data"))
CHECKPOINTS = DATA / "checkpoints"
RESULTS = DATA / "results"
FIGURES = ROOT / "figures"
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
