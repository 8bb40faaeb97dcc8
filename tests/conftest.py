"""Fixtures that every part of the suite shares: reference data, databases and brokers."""

import gc
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from broker_keys import REDIS, SESSION, forget, queue_name_of_test
from faulty_s3 import s3, s3_server
from gallery import any_db, db, finished, gallery, run_id, store_url

# fixtures
__all__ = ["any_db", "db", "finished", "gallery", "run_id", "s3", "s3_server", "store_url"]

# One process of tests per core, so one thread each: more wait for each other, twice as long in
# all. It is read where torch is imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What is imported and collected stays: searching it for garbage again and again takes seconds.
gc.set_threshold(50_000, 20, 100)


def pytest_unconfigure(config: pytest.Config) -> None:
    """What processes and late connections bound in Redis goes with the session."""
    if not hasattr(config, "workerinput"):
        forget(REDIS, SESSION)


#: of each property; .ci/run tries more of all properties
EXAMPLES = int(os.environ.get("TRANSEXPLAIN_EXAMPLES", "20"))
# a busy machine is no failure: no time limits for single examples, nor for making them
hypothesis.settings.register_profile(
    "house",
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("house")


@pytest.hookimpl(optionalhook=True)  # xdist may be switched off
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than cores (some tests wait), at most eight; for named files none."""
    named = any(Path(one.partition("::")[0]).suffix == ".py" for one in config.args)
    usable = getattr(os, "sched_getaffinity", None)  # not on macOS
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    return 0 if named else min(cores + 1, 8)


#: test file -> whether it has a test that is not exhaustive
EVERYDAY = pytest.StashKey[dict[Path, bool]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note what there is of each file before a selection takes tests away; the longest first."""
    found = config.stash.setdefault(EVERYDAY, {})
    for item in items:
        found[item.path] = found.get(item.path, False) or not item.get_closest_marker("exhaustive")
    # what has a time limit of its own takes minutes: begun last, it would keep the rest waiting
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.fixture
def everyday(pytestconfig: pytest.Config) -> dict[Path, bool]:
    """Whether each test file has a test that is not exhaustive."""
    return pytestconfig.stash[EVERYDAY]


_SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real models and data beside the checkout."""
    folder = Path(os.environ.get("TRANSEXPLAIN_SHARED", _SHARED))
    if not folder.is_dir():
        pytest.skip("no real data beside this checkout")
    return folder


def _service_missing(name: str, error: Exception) -> None:
    if os.environ.get("CI") == "true":
        raise error
    pytest.skip(f"no {name} reachable: {error}")


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """URL of an empty PostgreSQL database that is dropped afterwards."""
    import psycopg

    admin = os.environ.get(
        "TRANSEXPLAIN_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres"
    )
    name = f"te_test_{uuid.uuid4().hex[:12]}"
    try:
        connection = psycopg.connect(admin, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as error:
        _service_missing("PostgreSQL", error)
        raise
    with connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield (
            admin.replace("postgresql://", "postgresql+psycopg://").rpartition("/")[0] + f"/{name}"
        )
    finally:
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.fixture
def redis_url() -> str:
    """URL of a reachable Redis; tests use a queue name of their own and clean it up."""
    import redis

    try:
        with redis.Redis.from_url(REDIS, socket_connect_timeout=5) as client:
            client.ping()
    except redis.RedisError as error:
        _service_missing("Redis", error)
    return REDIS


@pytest.fixture
def queue_name(redis_url: str) -> Iterator[str]:
    """A queue of the test's own in Redis, whose keys are deleted afterwards."""
    name = queue_name_of_test()
    yield name
    forget(redis_url, name)


@pytest.fixture
def amqp_url() -> str:
    """URL of a reachable RabbitMQ; tests use queues of their own and delete them."""
    import amqp

    url = os.environ.get("TRANSEXPLAIN_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//")
    host, _, port = url.rpartition("@")[2].partition("/")[0].partition(":")
    user, _, password = url.partition("://")[2].rpartition("@")[0].partition(":")
    try:
        with amqp.Connection(f"{host}:{port or 5672}", user, password, connect_timeout=5):
            pass
    except (OSError, amqp.AMQPError) as error:
        _service_missing("RabbitMQ", error)
    return url


@pytest.fixture
def bert_dir(tmp_path: Path) -> Path:
    """A directory with a tiny BERT classifier of three named classes and its tokenizer."""
    from tiny_models import bert, wordpiece

    folder = tmp_path / "bert"
    bert(id2label={0: "bad", 1: "so-so", 2: "good"}).save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return folder


@pytest.fixture
def vit_dir(tmp_path: Path) -> Path:
    """A directory with a tiny ViT classifier and its image processor."""
    import transformers
    from tiny_models import vit

    folder = tmp_path / "vit"
    vit().save_pretrained(folder)
    size = {"height": 24, "width": 24}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)
    return folder


@pytest.fixture
def timm_dir(tmp_path: Path) -> Path:
    """A directory with a tiny ViT of timm in the form that a training saves."""
    import timm
    import torch
    from model_folders import TIMM_ARGS, edit
    from safetensors.torch import save_file

    folder = tmp_path / "timm"
    folder.mkdir()
    torch.manual_seed(0)
    module = timm.models.vision_transformer.VisionTransformer(**TIMM_ARGS)
    save_file(module.state_dict(), folder / "model.safetensors")
    edit(
        folder / "config.json",
        architecture="timm.models.vision_transformer.VisionTransformer",
        timm_args=TIMM_ARGS,
        classes=["cat", "dog", "cow"],
        mean=[0.5, 0.25, 0.5],
        std=[0.5, 0.25, 0.25],
        input_size=[3, 16, 16],
        interpolation="bilinear",
    )
    return folder


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command line in this process and in a folder of its own."""
    from orchestrator.cli import main

    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "BROKER_URL", "SNAPSHOT_DIR"):
        monkeypatch.delenv(f"TRANSEXPLAIN_{name}", raising=False)

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["transexplain", *words])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest goes on
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run
