"""The environments of the tools: this one, and one for each peer, in a folder outside the
repository.

The lists in `requirements` name the version of each package. They were written by `pip freeze`
after the installation that the peer's documentation recommends: `flaml[automl]`, and
`autogluon.tabular` with what the preset `medium_quality` needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements"


class MissingEnvironment(Exception):
    """The environment of a peer does not exist. The message says how to make it."""


@dataclass(frozen=True)
class Tool:
    """A tool of the benchmark.

    Attributes:
        name: Name on the command line and in the report.
        script: Module of the folder `tools`.
        packages: Packages whose versions are recorded.
        is_peer: True if the tool has an environment of its own.
        takes_time: False if the tool takes no time budget.
        preset: Preset of AutoGluon.
        environment: Name of the environment; "" for the name of the tool.
        is_extra: True if the tool runs only if it is named.
    """

    name: str
    script: str
    packages: tuple[str, ...]
    is_peer: bool = False
    takes_time: bool = True
    preset: str = ""
    environment: str = ""
    is_extra: bool = False

    def folder(self, peers: Path) -> Path:
        """Return the folder of the tool's environment."""
        return peers / (self.environment or self.name)

    def python(self, peers: Path | None) -> Path:
        """Return the Python of the tool's environment.

        Raises:
            MissingEnvironment: There is no such environment.
        """
        if not self.is_peer:
            return Path(sys.executable)
        if peers is None:
            raise MissingEnvironment(f"{self.name} needs --peers FOLDER, the folder of `peers`")
        folder = self.folder(peers)
        if not (folder / "ready").exists():
            raise MissingEnvironment(
                f"{folder} is no environment; "
                f"make it: python -m benchmarks tables peers --peers {peers}"
            )
        return folder / "bin" / "python"


DEFAULT = "xgboost_default"
AUTOGLUON = ("autogluon.tabular", "lightgbm", "catboost", "xgboost-cpu", "torch")
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("sweeps", "sweeps_commands", ("xgboost", "ray", "optuna")),
        Tool("flaml", "flaml_automl", ("flaml", "lightgbm", "xgboost"), is_peer=True),
        Tool("autogluon", "autogluon_tabular", AUTOGLUON, is_peer=True, preset="medium_quality"),
        Tool(
            "autogluon_high",
            "autogluon_tabular",
            AUTOGLUON,
            is_peer=True,
            preset="high_quality",
            environment="autogluon",
            is_extra=True,
        ),
        Tool("loop", "optuna_loop", ("xgboost", "optuna")),
        Tool(DEFAULT, "xgboost_defaults", ("xgboost",), takes_time=False),
    )
}


def make_environments(peers: Path) -> None:
    """Make the environments of the peers that are missing."""
    for tool in TOOLS.values():
        folder = tool.folder(peers)
        if not tool.is_peer or tool.is_extra or (folder / "ready").exists():
            continue
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
        wanted = REQUIREMENTS / f"{tool.name}.txt"
        torch = [line for line in wanted.read_text().splitlines() if line.startswith("torch==")]
        if torch:  # first and alone: with it there, nothing else brings another build of it
            subprocess.run([*pip, *torch], check=True)
        subprocess.run([*pip, "-r", wanted], check=True)
        (folder / "ready").touch()


def versions(tool: Tool, peers: Path | None) -> dict[str, str]:
    """Return the versions of the tool's packages, read in its environment."""
    code = (
        "import importlib.metadata, json, sys\n"
        "print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))"
    )
    command = [tool.python(peers), "-c", code, *tool.packages]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)
