import datetime
from pathlib import Path

import msgspec
import pytest

from drumbeat import dotenv
from drumbeat.appref import to_flags
from drumbeat.errors import ConfigError
from drumbeat.retry import Backoff
from drumbeat.settings import NAMES, Settings
from drumbeat.settings_loader import load, resolve


def resolved(
    flags: dict[str, object] | None = None,
    code: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    env_file: dict[str, str] | None = None,
) -> Settings:
    return resolve(flags or {}, code or {}, environ or {}, env_file or {})


def test_flags_beat_code_beats_environment_beats_env_file_beats_default() -> None:
    environ, env_file = {"DRUMBEAT_BATCH": "30"}, {"DRUMBEAT_BATCH": "40"}
    assert resolved({"batch": 10}, {"batch": 20}, environ, env_file).batch == 10
    assert resolved({"batch": None}, {"batch": 20}, environ, env_file).batch == 20
    assert resolved({}, {}, environ, env_file).batch == 30
    assert resolved({}, {}, {}, env_file).batch == 40
    assert resolved().batch == 500


def test_each_value_remembers_its_origin() -> None:
    settings = resolved(
        {"dead_after": 20}, {"batch": 20}, {"DRUMBEAT_URL": "sqlite:////tmp/a.db"}, {"DRUMBEAT_POLL": "2"}
    )
    assert settings.origin["dead_after"] == "flag --dead-after"
    assert settings.origin["batch"] == "Drumbeat(batch=)"
    assert settings.origin["url"] == "environment DRUMBEAT_URL"
    assert settings.origin["poll"] == ".env DRUMBEAT_POLL"
    assert settings.origin["drain"] == "default"
    assert set(settings.origin) == set(NAMES)


def test_an_empty_variable_is_not_set() -> None:
    assert resolved(environ={"DRUMBEAT_BATCH": ""}).batch == 500


def test_the_defaults_are_those_of_the_record() -> None:
    settings = resolved()
    for field in msgspec.structs.fields(Settings):
        if field.name not in ("url", "origin", "queues"):
            assert getattr(settings, field.name) == field.default
    assert settings.queues == {}


def test_every_default_is_accepted_when_written_out() -> None:
    settings = resolved()
    code = {name: value for name in NAMES if (value := getattr(settings, name)) is not None}
    again = resolved(code=code)
    assert msgspec.structs.replace(again, origin={}) == msgspec.structs.replace(settings, origin={})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", "0"),
        ("concurrency", "ten"),
        ("concurrency", "1.5"),
        ("batch", "-1"),
        ("drain", "soon"),
        ("heartbeat", "0"),
        ("dead_after", "-3"),
        ("role", "boss"),
        ("health", "8080"),
        ("health", "somewhere:http"),
        ("max_jobs", "many"),
        ("max_memory", "1.5GB"),
        ("max_memory", "5MB"),
        ("queues", "critical=many"),
        ("queues", "a b"),
        ("strict", "maybe"),
        ("namespace", "9-lives"),
        ("imports", "shop/tasks.py"),
        ("url", "drumbeat.db"),
        ("coordination", "localhost"),
        ("log_level", "loud"),
        ("retention", "-1d"),
        ("version", "x\0y"),
        ("retries", "-1"),
        ("backoff", "soon"),
        ("backoff", "1s,5s,soon"),
        ("backoff", "base=1s,top=5s"),
        ("backoff", "base=1m,cap=5s"),
    ],
)
def test_a_bad_value_is_refused_naming_the_setting_and_its_origin(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolved(environ={f"DRUMBEAT_{name.upper()}": value})
    assert refused.value.setting == name
    assert f"setting {name} (environment DRUMBEAT_{name.upper()})" in str(refused.value)


def test_a_flag_that_is_no_number_is_refused_even_if_it_is_true() -> None:
    with pytest.raises(ConfigError, match="concurrency"):
        resolved({"concurrency": True})


def test_an_unknown_setting_is_refused_with_the_near_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'concurrency'"):
        resolved(code={"concurency": 3})


def test_a_refused_url_does_not_repeat_its_password() -> None:
    with pytest.raises(ConfigError) as refused:
        resolved(environ={"DRUMBEAT_URL": "me:secret@db"})
    assert "secret" not in str(refused.value)


def test_a_heart_is_not_called_dead_before_it_had_time_to_beat() -> None:
    with pytest.raises(ConfigError, match="at least three times heartbeat"):
        resolved(code={"heartbeat": 5})


def test_a_relative_sqlite_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved().url == f"sqlite:///{tmp_path}/drumbeat.db"
    assert resolved(code={"url": "sqlite:///sub/jobs.db?mode=rw"}).url == f"sqlite:///{tmp_path}/sub/jobs.db?mode=rw"
    assert resolved(code={"url": "sqlite:////var/jobs.db"}).url == "sqlite:////var/jobs.db"


def test_lengths_of_time_are_seconds_however_they_are_written() -> None:
    assert resolved(environ={"DRUMBEAT_RETENTION": "2d"}).retention == 172_800
    assert resolved(code={"drain": datetime.timedelta(minutes=1)}).drain == 60
    assert resolved(code={"poll": 0.5}).poll == 0.5


def test_default_retries_and_delays_are_settings() -> None:
    assert (resolved().retries, resolved().backoff) == (3, Backoff(base=1, cap=30))
    assert resolved(environ={"DRUMBEAT_RETRIES": "0"}).retries == 0
    for text, meant in {
        "1s, 5s,2m": Backoff(delays=[1, 5, 120]),
        "7": Backoff(delays=[7]),
        "base=2s,cap=1h": Backoff(base=2, cap=3600),
        "cap=1h": Backoff(base=1, cap=3600),
    }.items():
        found = resolved(environ={"DRUMBEAT_BACKOFF": text})
        assert found.backoff == meant
        # As another process gets it.
        assert resolved(to_flags(found)).backoff == meant
        assert msgspec.json.decode(msgspec.json.encode(found), type=Settings).backoff == meant
    assert resolved(code={"backoff": [1, "5s"]}).backoff == Backoff(delays=[1, 5])
    assert resolved(code={"backoff": Backoff(base=5)}).backoff == Backoff(base=5)


def test_drain_forever_is_no_limit() -> None:
    assert resolved(environ={"DRUMBEAT_DRAIN": "forever"}).drain is None


def test_queues_have_their_weights() -> None:
    assert resolved(environ={"DRUMBEAT_QUEUES": "critical, mail=2 ,low,slow"}).queues == {
        "critical": 6,
        "mail": 2,
        "low": 1,
        "slow": 3,
    }
    assert resolved(code={"queues": {"a": 7}}).queues == {"a": 7}
    assert resolved(code={"queues": ["default"]}).queues == {"default": 3}


def test_a_worker_takes_the_queues_of_its_settings_and_no_others_else_those_of_its_tasks() -> None:
    assert resolved(code={"queues": "default=9,extra"}).queue_weights({"default", "critical"}) == {
        "default": 9,
        "extra": 3,
    }
    assert resolved().queue_weights({"default", "critical"}) == {"critical": 6, "default": 3}


def test_queues_that_a_flag_leaves_out_stay_declared() -> None:
    settings = resolved(flags={"queues": "mail"}, code={"queues": {"critical": 6}}, environ={"DRUMBEAT_QUEUES": "low"})
    assert settings.queues == {"mail": 3} and settings.declared_queues == {"mail", "critical", "low"}


def test_load_reads_the_environment_and_the_file_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMBEAT_BATCH", "7")
    (tmp_path / ".env").write_text("DRUMBEAT_BATCH=8\nDRUMBEAT_POLL=3\n")
    settings = load({}, {})
    assert (settings.batch, settings.poll) == (7, 3.0)


def test_an_env_file_has_comments_quotes_and_exports() -> None:
    text = """
# a comment
PLAIN=value   # after it
export EXPORTED = yes
HASH=redis://h#1
SINGLE='a # b\\n'
DOUBLE="say \\"hi\\"\\n"  # done
EMPTY=
COMMENTED= # nothing
TWICE=1
TWICE=2
"""
    assert dotenv.parse(text) == {
        "PLAIN": "value",
        "EXPORTED": "yes",
        "HASH": "redis://h#1",
        "SINGLE": "a # b\\n",
        "DOUBLE": 'say "hi"\n',
        "EMPTY": "",
        "COMMENTED": "",
        "TWICE": "2",
    }


@pytest.mark.parametrize(
    ("size", "found"), [("512MB", 512_000_000), ("2GiB", 2 * 2**30), ("64 m", 64_000_000), (300_000_000, 300_000_000)]
)
def test_a_size_has_its_unit(size: object, found: int) -> None:
    assert resolved({"max_memory": size}).max_memory == found


def test_health_is_an_address_or_a_file() -> None:
    assert resolved({"health": "127.0.0.1:8080"}).health == "127.0.0.1:8080"
    assert resolved({"health": "run/health"}).health == str(Path.cwd() / "run" / "health")


@pytest.mark.parametrize("line", ["no equals sign", "1KEY=x", "KEY='open", 'KEY="a" b'])
def test_a_bad_line_of_an_env_file_is_refused_by_its_number_only(line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        dotenv.parse(f"OK=1\n{line}\n")
    assert str(refused.value) == ".env line 2 is not of the form KEY=value"


def test_no_env_file_is_no_variables(tmp_path: Path) -> None:
    assert dotenv.read(tmp_path / ".env") == {}


def test_every_setting_says_what_it_is_and_its_default() -> None:
    source = Path(Settings.__module__.replace(".", "/")).name
    text = (Path(__file__).parents[2] / "src/drumbeat" / f"{source}.py").read_text()
    for name in NAMES:
        after = text.split(f"\n    {name}: ", 1)[1]
        docstring = after.split('"""')[1]
        assert "Default:" in docstring, name
