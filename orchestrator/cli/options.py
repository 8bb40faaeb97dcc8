"""Options and steps that several verbs share: the specification, the output, the store,
warnings.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

import typer

from transexplain.errors import ConfigurationError
from transexplain.files.paths import any_path
from transexplain.settings import Settings, processes_of

if TYPE_CHECKING:
    from orchestrator.dispatch.executors import Executor
    from orchestrator.serve.live_desk import LiveSettings
    from transexplain.files.paths import AnyPath
    from transexplain.store.database import Database
    from transexplain.types.plans import Modality

    Place: TypeAlias = AnyPath
else:
    Place = Any  # typer takes no union; what is given becomes a path or a URL by its `parser`

#: how a verb says what it does: bars and sentences, nothing, or lines of JSON
Output = Literal["bar", "quiet", "json"]


class Several(NamedTuple):
    """Stands for several options among a verb's parameters; the verb receives what they say."""

    options: Callable[[], dict[str, Any]]  #: name of a parameter -> its annotation
    value: Callable[[dict[str, Any]], Any]  #: of these parameters


def _of_spec(*without: str) -> Several:
    """The options of a specification; their value are keys of it."""

    def options() -> dict[str, Any]:
        from orchestrator.spec.audit_spec import OPTIONS  # slow to import

        return {name: mark for name, mark in OPTIONS.items() if name not in without}

    def value(options: dict[str, Any]) -> dict[str, Any]:
        from orchestrator.spec.audit_spec import overrides_of

        return overrides_of(**options)

    return Several(options, value)


def _output(options: dict[str, Any]) -> Output:
    if options["quiet"] and options["json_"]:
        raise ConfigurationError("--quiet prints nothing and --json lines of JSON; give one")
    return "quiet" if options["quiet"] else "json" if options["json_"] else "bar"


_OUTPUT = {
    "quiet": Annotated[
        bool | None,
        typer.Option("--quiet", "-q", help="print nothing but warnings and errors"),
    ],
    "json_": Annotated[
        bool | None,
        typer.Option("--json", help="print progress and results as lines of JSON"),
    ],
}


def _live_options() -> dict[str, Any]:
    limits = {
        "seconds": (float, 0.1, "seconds that one explanation may take; default: 30"),
        "load_seconds": (float, 0.1, "seconds that its model may take to load; default: 120"),
        "rate": (int, 1, "requests a minute of one reader; default: 20"),
        "waiting": (int, 1, "requests that may wait; default: 8"),
        "text_bytes": (int, 1, "bytes of a text; default: 65536"),
        "picture_bytes": (int, 1, "bytes of a picture; default: 10485760"),
        "pixels": (int, 1, "pixels of a picture; default: 16000000"),
        "idle_seconds": (float, 1, "seconds after which an unused model is let go; default: 600"),
    }
    live = typer.Option("--live", help="explain texts and pictures that readers bring")
    options: dict[str, Any] = {"live": Annotated[bool | None, live]}
    for name, (kind, least, text) in limits.items():
        option = typer.Option(f"--live-{name.replace('_', '-')}", min=least, help=text)
        options[f"live_{name}"] = Annotated[kind | None, option]
    device = typer.Option("--live-device", help="torch device for them; default: cpu")
    return {**options, "live_device": Annotated[str | None, device]}


def _live(options: dict[str, Any]) -> "LiveSettings | None":
    """The settings of live explanations; None without `--live`."""
    limits = {
        name.removeprefix("live_"): value
        for name, value in options.items()
        if name != "live" and value is not None
    }
    if options["live"]:
        from orchestrator.serve.live_desk import LiveSettings

        return LiveSettings(**limits)
    for name in limits:
        raise ConfigurationError(f"--live-{name.replace('_', '-')} is a limit of --live")
    return None


def ready_executor(
    chosen: dict[str, Any], settings: Settings, *, queue: bool = False
) -> "Executor":
    """The executor that options choose, `celery` with `--queue`; what it lacks is said now.

    Raises as `Executor.check`, and ConfigurationError for options that do not go together.
    """
    from orchestrator.dispatch.executors import Workforce, executor

    options = {**chosen, "processes": chosen["processes"] or 1}
    name = options.pop("executor")
    if queue and name not in (None, "celery"):
        raise ConfigurationError("--queue is --executor celery; leave out one of the two")
    workforce = Workforce(settings=settings, **options)
    ready = executor(name or ("celery" if queue else "local"), workforce)
    ready.check()
    return ready


_EXECUTOR = {
    "executor": Annotated[
        str | None,
        typer.Option(
            "--executor",
            help="who works: local (processes here, the default), celery (workers on the "
            "queue), slurm (an array job of workers) or ray (actors of a Ray cluster)",
        ),
    ],
    "processes": Annotated[
        int | None,
        typer.Option("--processes", "-p", min=1, help="of the local executor; default: 1"),
    ],
    "workers": Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            help="how many slurm (default: 8) or ray (default: one for each device) start",
        ),
    ],
    "address": Annotated[
        str | None, typer.Option("--address", help="of the Ray cluster: auto, HOST:6379 or local")
    ],
    "script": Annotated[
        Path | None, typer.Option("--script", help="batch script with which slurm starts a worker")
    ],
}

Chosen = Annotated[dict[str, Any], Several(lambda: _EXECUTOR, dict)]
Live = Annotated["LiveSettings | None", Several(_live_options, _live)]
Overrides = Annotated[dict[str, Any], _of_spec()]
UnnamedOverrides = Annotated[dict[str, Any], _of_spec("name")]
EvaluationOverrides = Annotated[dict[str, Any], _of_spec("method", "lexicon", "reference")]
OutputMode = Annotated[Output, Several(lambda: _OUTPUT, _output)]
SpecPath = Annotated[
    Place | None,
    typer.Argument(
        parser=any_path,
        metavar="[SPEC]",
        help="audit specification (YAML), a path or URL; options override it",
    ),
]


def place_option(*names: str, help: str) -> Any:
    """An option whose value is a path of this machine or a URL."""
    return typer.Option(*names, parser=any_path, metavar="PATH", help=help)


ReportDir = Annotated[
    Place, place_option("--out", "-o", "--report-dir", help="folder that files are written to")
]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", help="parameter of the method, e.g. --param gamma=0.25"),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="set any key, e.g. --set data.limit=100")
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option("--db", help="SQLAlchemy URL; default $TRANSEXPLAIN_DATABASE_URL or SQLite here"),
]
HostProcesses = Annotated[
    str | None,
    typer.Option(
        "--host-processes",
        help="processes that read and encode for each device: auto, 0 (a thread does) or a number; "
        "default: TRANSEXPLAIN_HOST_PROCESSES, else auto",
    ),
]
LoadedTo = Annotated[
    str, typer.Option("--device", help="torch device such as cuda:0, or spread: all CUDA devices")
]
Processes = Annotated[int, typer.Option("--processes", "-p", min=1, help="local processes")]
Redact = Annotated[
    bool, typer.Option("--redact", help="leave out texts, ids, and rows of few items")
]
MinCount = Annotated[
    int | None,
    typer.Option("--min-count", help="items behind a row, with --redact; default: 10"),
]
RunId = Annotated[str, typer.Argument(help="run id, its beginning, or `latest`")]
Previous = Annotated[
    str | None,
    typer.Option("--previous", help="compare the report with this run: id, beginning or `latest`"),
]
Modalities = Annotated[
    list[str] | None,
    typer.Option("--modality", help="only text, image or nodes; may be repeated; default: all"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def settings_with(database_url: str | None, host_processes: str | None = None) -> Settings:
    """The environment's settings, with `--db` and `--host-processes` over them."""
    settings = Settings.from_environment()
    if host_processes is not None:
        count = processes_of(host_processes, "--host-processes")
        settings = replace(settings, host_processes=count)
    return replace(settings, database_url=database_url) if database_url else settings


def modalities_of(names: list[str] | None) -> "tuple[Modality, ...]":
    """The modalities that were given, or all; raises ConfigurationError for another word."""
    from transexplain.types.plans import Modality

    known: tuple[Modality, ...] = get_args(Modality)
    unknown = set(names or ()) - set(known)
    if unknown:
        raise ConfigurationError(
            f"--modality {', '.join(sorted(unknown))}: known are {', '.join(known)}"
        )
    return tuple(modality for modality in known if not names or modality in names)


def group_of(*verbs: Callable[..., None]) -> typer.Typer:
    """A verb with verbs of its own, which are called as these functions."""
    group = typer.Typer(no_args_is_help=True, add_completion=False)
    for verb in verbs:
        group.command(verb.__name__.strip("_").replace("_", "-"))(verb)
    return group


def open_store(settings: Settings) -> "Database":
    """The store, created or upgraded where it is a private file (SQLite)."""
    from transexplain.store.revisions import open_database

    return open_database(settings.database_url, upgrade=settings.database_url.startswith("sqlite"))


def warn(message: str) -> None:
    """A warning for the terminal."""
    typer.secho(f"warning: {message}", fg=typer.colors.YELLOW, err=True)
