"""Names that other programs accept.

Two different names stay different, whatever other names there are.
"""

import hashlib
import re

# The end of every changed name. A name that has this end by chance is changed too, so that no two
# names become equal.
CHANGED = re.compile(r"--[0-9a-f]{8}\Z")
# Names under which trackers log what sweeps itself knows of a trial.
RESERVED = re.compile(
    r"(loop/)*(objective|steps|(cpu_|gpu_)?seconds|scaling\.num_workers|"
    r"(objective\.|final/|pbt\.params\.|sweeps\.).*)",
    re.DOTALL,
)


def safe_name(name: str, refused: re.Pattern[str], longest: int = 1 << 30) -> str:
    """Return a name without refused parts.

    A name that changes gets the beginning of its SHA-256 at the end.

    Args:
        name: The name.
        refused: Matches the parts that become underscores.
        longest: Longest name that is accepted, in characters.

    >>> safe_name("w_kg", re.compile("[<>]")), safe_name("w<kg", re.compile("[<>]"))
    ('w_kg', 'w_kg--3f02bd59')
    """
    clean = refused.sub(lambda part: "_" * len(part[0]), name)
    if name and clean == name and len(name) <= longest and not CHANGED.search(name):
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    end = f"--{digest[:8]}"
    return clean[: longest - len(end)] + end


def loop_name(name: str) -> str:
    """Return the name under which a metric of the training loop is logged.

    It differs from the name of each metric of sweeps.

    >>> loop_name("loss"), loop_name("seconds"), loop_name("loop/seconds")
    ('loss', 'loop/seconds', 'loop/loop/seconds')
    """
    return f"loop/{name}" if RESERVED.fullmatch(name) else name
