"""Signatures of reports: made and checked with keys of openssl, and refused where anything is
wrong.
"""

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gallery import Gallery

from transexplain.errors import ConfigurationError
from transexplain.provenance.report_signature import (
    load_public_key,
    load_signer,
    signature_checks,
    signature_text,
)

pytest.importorskip("securesystemslib")
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")

Call = Callable[..., tuple[int, str]]
KINDS = {
    "ed25519": ("-algorithm", "ed25519"),
    "p256": ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "rsa": ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
}
PASSWORD = "correct horse"


def openssl(*words: str | Path) -> bytes:
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True).stdout


@dataclass(frozen=True)
class Keys:
    private: Path
    public: Path


def make_keys(folder: Path, *words: str, name: str = "key") -> Keys:
    keys = Keys(folder / f"{name}.pem", folder / f"{name}.pub")
    openssl("genpkey", *words, "-out", keys.private)
    openssl(
        "pkey", "-in", keys.private, "-passin", f"pass:{PASSWORD}", "-pubout", "-out", keys.public
    )
    return keys


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return make_keys(tmp_path, *KINDS["ed25519"])


@pytest.fixture
def signed(tmp_path: Path, keys: Keys) -> Path:
    """A signature of a report and a manifest beside it."""
    files = [tmp_path / name for name in ("audit.html", "audit.json", "manifest-audit.json")]
    for number, path in enumerate(files):
        path.write_text(f"file {number}", encoding="utf-8")
    path = tmp_path / "signature-audit.json"
    path.write_bytes(signature_text(files, "run-1", load_signer(keys.private)))
    return path


def failed(path: Path, keys: Keys, run: str | None = None) -> str:
    """The only FAIL."""
    (line,) = [c for c in signature_checks(path, keys.public, run) if c.status == "FAIL"]
    return f"{line.name}: {line.text}"


@pytest.mark.parametrize("kind", KINDS)
def test_signatures_verify_with_keys_of_every_kind(tmp_path: Path, kind: str) -> None:
    keys = make_keys(tmp_path, *KINDS[kind])
    report = tmp_path / "a report.html"
    report.write_text("x", encoding="utf-8")
    path = tmp_path / "signature.json"
    path.write_bytes(signature_text([report], "run-1", load_signer(keys.private)))
    checks = list(signature_checks(path, keys.public, "run-1"))
    assert [line.name for line in checks] == [
        "signature",
        "signed run",
        "signed file a report.html",
    ]
    assert {line.status for line in checks} == {"PASS"}
    assert "run-1" in checks[0].text and "dated 20" in checks[0].text


@pytest.mark.parametrize("kind", ["ed25519", "p256"])
def test_openssl_alone_agrees(tmp_path: Path, kind: str) -> None:
    """The envelope is DSSE v1: what is signed can be put together, and checked, by hand."""
    keys = make_keys(tmp_path, *KINDS[kind])
    report = tmp_path / "report.html"
    report.write_text("x", encoding="utf-8")
    envelope = json.loads(signature_text([report], "run-1", load_signer(keys.private)))
    payload = base64.b64decode(envelope["payload"])
    kind_of = envelope["payloadType"].encode()
    message = tmp_path / "message"
    message.write_bytes(b"DSSEv1 %d %b %d %b" % (len(kind_of), kind_of, len(payload), payload))
    (made,) = envelope["signatures"]
    (tmp_path / "sig").write_bytes(base64.b64decode(made["sig"]))
    verify = ("-verify", "-pubin", "-inkey", keys.public, "-sigfile", tmp_path / "sig")
    hashed = () if kind == "ed25519" else ("-digest", "sha256")
    openssl("pkeyutl", *verify, "-rawin", *hashed, "-in", message)
    der = openssl("pkey", "-pubin", "-in", keys.public, "-outform", "DER")
    (tmp_path / "der").write_bytes(der)
    assert made["keyid"] in openssl("dgst", "-sha256", tmp_path / "der").decode()
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert [one["name"] for one in statement["subject"]] == ["report.html"]


def test_a_changed_report_manifest_or_run(tmp_path: Path, signed: Path, keys: Keys) -> None:
    assert {line.status for line in signature_checks(signed, keys.public, None)} == {"PASS"}
    assert failed(signed, keys, "run-2").startswith("signed run: ")
    for name in ("audit.html", "manifest-audit.json"):
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(before + b" ")
        assert failed(signed, keys).startswith(f"signed file {name}: ")
        (tmp_path / name).write_bytes(before)
    (tmp_path / "audit.json").unlink()
    assert failed(signed, keys).startswith("signed file audit.json: ")
    (tmp_path / "audit.json").mkdir()
    assert "Is a directory" in failed(signed, keys)


def test_another_key_and_one_under_the_name_of_the_right_one(
    tmp_path: Path, signed: Path, keys: Keys
) -> None:
    other = make_keys(tmp_path, *KINDS["ed25519"], name="other")
    (check,) = signature_checks(signed, other.public, None)
    assert check.status == "FAIL", "and no file is looked at"
    forged = json.loads(signature_text([tmp_path / "audit.html"], "x", load_signer(other.private)))
    forged["signatures"][0]["keyid"] = load_public_key(keys.public).keyid
    signed.write_text(json.dumps(forged), encoding="utf-8")
    assert failed(signed, keys).startswith("signature: ")


def test_a_changed_statement(signed: Path, keys: Keys) -> None:
    envelope = json.loads(signed.read_text(encoding="utf-8"))
    payload = base64.b64decode(envelope["payload"]).replace(b"run-1", b"run-2")
    envelope["payload"] = base64.b64encode(payload).decode()
    signed.write_text(json.dumps(envelope), encoding="utf-8")
    assert failed(signed, keys).startswith("signature: ")


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff", b"[]", b"null", b"{}"),
        b'{"payload": 1, "payloadType": "x", "signatures": []}',
        b'{"payload": "", "payloadType": "x", "signatures": [1]}',
        b'{"payload": "", "payloadType": "x", "signatures": []}',
        b'{"payload": "e30=", "payloadType": "application/vnd.in-toto+json", "signatures": []}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_signature_fails(signed: Path, keys: Keys, content: bytes) -> None:
    signed.write_bytes(content)
    assert failed(signed, keys).startswith("signature: ")


def envelope_of(payload: bytes, keys: Keys) -> bytes:
    from securesystemslib.dsse import Envelope

    made = Envelope(payload, "application/vnd.in-toto+json", {})
    made.sign(load_signer(keys.private))
    return json.dumps(made.to_dict()).encode()


STATEMENT: dict[str, Any] = {
    "_type": "https://in-toto.io/Statement/v1",
    "predicateType": "urn:transexplain:report-signature:1",
    "predicate": {"run": "run-1", "signed": "2026-01-01T00:00:00Z"},
    "subject": [{"name": "audit.html", "digest": {"sha256": "0" * 64}}],
}


def test_a_valid_signature_of_something_else_fails(signed: Path, keys: Keys) -> None:
    changes: list[dict[str, Any]] = [
        {"predicateType": "https://slsa.dev/provenance/v1"},
        {"predicate": None},
        {"subject": []},
        {"subject": [{"name": "a"}]},
    ]
    payloads = [json.dumps({**STATEMENT, **change}).encode() for change in changes]
    for payload in (*payloads, b"\xff no JSON"):
        signed.write_bytes(envelope_of(payload, keys))
        assert "no statement about a report" in failed(signed, keys)
    for name in ("../k", "/k", "..", ""):
        subject = [{"name": name, "digest": {"sha256": "0"}}]
        signed.write_bytes(
            envelope_of(json.dumps({**STATEMENT, "subject": subject}).encode(), keys)
        )
        assert repr(name) in failed(signed, keys)


# ---- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("-algorithm", "X25519"),
        ("-algorithm", "ED448"),
        ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"),
        ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"),
    ],
    ids=lambda words: words[1],
)
def test_keys_of_other_kinds_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    keys = make_keys(tmp_path, *words)
    for load, path in ((load_signer, keys.private), (load_public_key, keys.public)):
        with pytest.raises(ConfigurationError, match="openssl genpkey -algorithm ed25519"):
            load(path)


def test_an_encrypted_key_needs_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = make_keys(
        tmp_path, *KINDS["ed25519"], "-aes-256-cbc", "-pass", f"pass:{PASSWORD}", name="locked"
    )
    monkeypatch.delenv("TRANSEXPLAIN_SIGNING_PASSWORD", raising=False)
    with pytest.raises(ConfigurationError, match="is encrypted"):
        load_signer(locked.private)
    monkeypatch.setenv("TRANSEXPLAIN_SIGNING_PASSWORD", "wrong")
    with pytest.raises(ConfigurationError, match="password is wrong"):
        load_signer(locked.private)
    monkeypatch.setenv("TRANSEXPLAIN_SIGNING_PASSWORD", PASSWORD)
    assert load_signer(locked.private).public_key == load_public_key(locked.public)
    plain = make_keys(tmp_path, *KINDS["ed25519"])
    load_signer(plain.private)  # a password that is not needed does no harm


def test_what_is_no_key_and_the_wrong_half(tmp_path: Path, keys: Keys) -> None:
    odd, large = tmp_path / "odd.pem", tmp_path / "large.pem"
    odd.write_text("ssh-ed25519 AAAA", encoding="utf-8")
    large.write_bytes(b"x" * 70_000)
    for load, path, named in (
        (load_signer, keys.public, "public key"),
        (load_public_key, keys.private, "private key"),
        (load_signer, odd, "no PEM"),
        (load_public_key, odd, "no PEM"),
        (load_signer, tmp_path / "nowhere.pem", "No such file"),
        (load_signer, large, "too large"),
    ):
        with pytest.raises(ConfigurationError, match=named):
            load(path)


def test_without_the_extra_the_command_is_named(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "securesystemslib", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[signing\]'"):
        load_signer(keys.private)


# ---- the command line ----------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_the_command_line_signs_a_report_and_checks_it(
    gallery: Gallery, tmp_path: Path, keys: Keys, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = gallery["texts"].copy(tmp_path / "run")
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", run.url)
    code, printed = call("report", "--sign", str(keys.private), "--out", "out")
    assert code == 0, printed
    signature = tmp_path / "out" / f"signature-tiny-{run.id}.json"
    name = f"tiny-{run.id}"
    names = {f"{name}.html", f"{name}.json", f"manifest-{name}.json", signature.name}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    check = ("verify", "--signature", str(signature), "--public-key", str(keys.public))
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", "sqlite:////nowhere/at/all.db")
    code, printed = call(*check)
    assert code == 0, "no store is needed"
    assert printed.count("PASS") == 4 and ": verified" in printed
    code, printed = call(*check, "--json")
    assert json.loads(printed)["failed"] == 0 and json.loads(printed)["run"] is None

    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", run.url)
    code, printed = call(*check, "latest", "--items", "1")
    assert code == 0, printed
    assert "PASS  signed run" in printed and "PASS  explained again" in printed

    (tmp_path / "out" / f"manifest-tiny-{run.id}.json").write_text("{}", encoding="utf-8")
    code, printed = call(*check)
    assert code == 1
    assert f"FAIL  signed file manifest-tiny-{run.id}.json" in printed
    assert "1 check failed" in printed

    code, printed = call("report", "--sign", str(keys.private), "--redact", "--out", "red")
    assert code == 0, printed
    red = next((tmp_path / "red").glob("signature-*"))
    assert red.name == f"signature-tiny-{run.id}-redacted.json"
    code, printed = call("verify", "--signature", str(red), "--public-key", str(keys.public))
    assert code == 0 and printed.count("signed file") == 2, "a redacted report has no manifest"
    assert call("report", "--sign", str(keys.public), "--out", "none")[0] == 2
    assert not (tmp_path / "none").exists(), "nothing is written before the key is known"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("report", "--sign", "k.pem", "--json"), "--json"),
        (("verify", "--signature", "s.json"), "--public-key FILE"),
        (("verify", "--public-key", "k"), "--signature FILE"),
        (("verify", "--signature", "s.json", "--public-key", "k.pub"), "k.pub"),
        (("verify", "--signature", "s.json", "--public-key", "key.pub"), "s.json"),
    ],
)
def test_wrong_usages(words: tuple[str, ...], named: str, call: Call, keys: Keys) -> None:
    code, printed = call(*words)
    assert code == 2 and named in printed
