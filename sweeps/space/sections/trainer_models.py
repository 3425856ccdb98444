"""The keys of the sections `trainer` and `runtime_env` of a space file.

Each section is a frozen dataclass. `section_checks.check` validates it by its annotations.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from .key_types import Backend, NonEmptyText, Variables


@dataclass(frozen=True)
class LoopKeys:
    """The section `trainer` as a mapping, which names a training loop.

    Attributes:
        loop: Your training loop, as `module:function`.
        backend: The process group that the ranks of the loop need. `module:attr` names a
            `BackendConfig` of your own.
        load: The function that loads a checkpoint's model, as `module:function`. Without `load`,
            the sweep writes no bundle.
        reuse: `auto` keeps the workers for the next trial. `never` closes the workers after each
            trial. Write `never` for a framework that cannot start twice in one process.
    """

    loop: NonEmptyText
    backend: Backend = "none"
    load: NonEmptyText | None = None
    reuse: Literal["auto", "never"] = "auto"


@dataclass(frozen=True)
class TrainerKeys:
    """The section `trainer` as a mapping, which names a trainer and gives its options.

    Each trainer has further keys for its options.

    Attributes:
        name: A built-in trainer, or your own module with a `TRAINER` literal.
        backend: The process group that the ranks of the loop need. By default, the trainer decides.
        load: The function that loads a checkpoint's model, as `module:function`. By default, the
            trainer decides.
        reuse: `auto` keeps the workers for the next trial. `never` closes the workers after each
            trial.
    """

    name: NonEmptyText | None = None
    backend: Backend | None = None
    load: NonEmptyText | None = None
    reuse: Literal["auto", "never"] = "auto"


@dataclass(frozen=True)
class RuntimeEnv:
    """The environment that Ray sets up for the workers and the process that prepares data.

    Attributes:
        env_vars: Environment variables, by name. MLflow, reports and bundles show only the names.
        pip: Requirements that Ray installs with pip, such as `polars==1.31.0`.
        py_modules: Folders of Python packages, wheels, or URIs of these. Workers can import the
            packages.
        working_dir: Folder that Ray copies for the workers, or its URI. Loops start in this folder.
        image_uri: Container image in which the processes run. It can be combined only with
            `env_vars`.
    """

    env_vars: Variables = field(default_factory=dict, repr=False)  # the values may be secrets
    pip: tuple[NonEmptyText, ...] = ()
    py_modules: tuple[NonEmptyText, ...] = ()
    working_dir: NonEmptyText | None = None
    image_uri: NonEmptyText | None = None

    def for_ray(self) -> dict[str, Any]:
        """Return the given keys as Ray's `runtime_env`."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if value
        }
