"""Detached signatures of reports, made and checked without a network.

A signature is an in-toto statement (v1) of the files' digests in a DSSE envelope, made with a
private key in a PEM file; other tools for these formats can check it, too.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from transexplain.data.source_files import file_digest
from transexplain.errors import ConfigurationError
from transexplain.files.paths import AnyPath
from transexplain.provenance.verification import Checks, judged
from transexplain.registry import require
from transexplain.settings import secret
from transexplain.text.parsing import UnreadableError, read_json, read_text
from transexplain.version import __version__

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner, SSlibKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:transexplain:report-signature:1"
_LARGEST_KEY = 65_536  #: bytes of a key's file
_LEAST_RSA = 2048  #: bits
_KINDS = "Ed25519, ECDSA over P-256, P-384 or P-521, or RSA of at least 2048 bits"
_MAKE = "`openssl genpkey -algorithm ed25519 -out KEY.pem` makes a key"
_PUBLIC = "`openssl pkey -in KEY.pem -pubout -out PUBLIC.pem` writes the public key"


def load_signer(path: Path) -> "CryptoSigner":
    """The private key in a PEM file, ready to sign.

    The password of an encrypted one is `TRANSEXPLAIN_SIGNING_PASSWORD`. Raises ConfigurationError:
    the file cannot be read, holds no private key or one of another kind, or the password is
    missing or wrong.
    """
    data = _key_bytes(path)
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    if b"PUBLIC KEY-----" in data:
        raise ConfigurationError(
            f"{path} holds a public key, which signs nothing; give the private key that belongs to "
            "it"
        )
    try:
        try:
            key = load_pem_private_key(data, None)
        except TypeError:  # it is encrypted
            key = load_pem_private_key(data, _password(path))
    except (ValueError, UnsupportedAlgorithm) as error:
        why = "the password is wrong, or it is damaged" if b"ENCRYPTED" in data else "it is no PEM"
        message = f"{path} holds no readable private key: {why}. {_MAKE}"
        raise ConfigurationError(message) from error
    return CryptoSigner(key, _known_key(path, key.public_key()))


def load_public_key(path: Path) -> "SSlibKey":
    """The public key in a PEM file; raises ConfigurationError where it holds none that is known."""
    data = _key_bytes(path)
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY-----" in data:
        raise ConfigurationError(
            f"{path} holds a private key; keep it to yourself and give the public one. {_PUBLIC}"
        )
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(f"{path} is no PEM file of a public key. {_PUBLIC}") from error
    return _known_key(path, key)


def _key_bytes(path: Path) -> bytes:
    require("securesystemslib", "signing")
    require("cryptography", "signing")
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_KEY + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read the key {path}: {error.strerror}") from error
    if len(data) > _LARGEST_KEY:
        raise ConfigurationError(f"{path} is too large for a key. {_MAKE}")
    return data


def _password(path: Path) -> bytes:
    password = secret("SIGNING_PASSWORD")
    if password is None:
        raise ConfigurationError(
            f"the key {path} is encrypted; give its password in TRANSEXPLAIN_SIGNING_PASSWORD, or "
            "name a file that holds it in TRANSEXPLAIN_SIGNING_PASSWORD_FILE"
        )
    return password.encode()


def _known_key(path: Path, key: "PublicKeyTypes") -> "SSlibKey":
    """A public key under the sha256 of its DER form, which openssl and sha256sum give, too."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from securesystemslib.signer import SSlibKey

    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        if isinstance(key, RSAPublicKey) and key.key_size < _LEAST_RSA:
            raise ValueError("a short key")
        return SSlibKey.from_crypto(key, keyid=hashlib.sha256(der).hexdigest())
    except ValueError as error:
        raise ConfigurationError(
            f"the key {path} is of another kind than {_KINDS}. {_MAKE}"
        ) from error


def signature_text(files: Sequence[AnyPath], run_id: str, signer: "CryptoSigner") -> bytes:
    """The signature of these files as they are now; raises OSError where one cannot be read."""
    from securesystemslib.dsse import Envelope

    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": file.name, "digest": {"sha256": file_digest(file)}} for file in files],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "run": run_id,
            "signed": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "transexplain": __version__,
        },
    }
    envelope = Envelope(json.dumps(statement, sort_keys=True).encode(), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return f"{json.dumps(envelope.to_dict(), indent=1)}\n".encode()


def signature_checks(path: Path, public_key: Path, run_id: str | None = None) -> Checks:
    """The signature, and then every file that it names, in its folder.

    Args:
        path: of the signature.
        public_key: of the signer.
        run_id: of the run that it is to be of; None: of any.

    Raises ConfigurationError where one of the two files cannot be read, or the key is none.
    Everything else that is wrong is a FAIL; nothing that is signed is believed before that.
    """
    key = load_public_key(public_key)
    try:
        text = read_text(path)
    except OSError as error:
        raise ConfigurationError(f"cannot read the signature {path}: {error.strerror}") from error
    except ValueError as error:  # no text, or too large
        yield judged("signature", [f"{path} is no signature: {error}"], "")
        return
    try:
        run, signed, digests = _verified(text, key, public_key)
    except _InvalidError as error:
        yield judged("signature", [f"{path}: {error}"], "")
        return
    good = f"of run {run}, made with the key of {public_key} (id {key.keyid[:16]}), dated {signed}"
    yield judged("signature", [], good)
    if run_id is not None:
        faults = [] if run == run_id else [f"it is of run {run}"]
        yield judged("signed run", faults, run_id)
    for name, digest in digests.items():
        faults = list(_faults(path.parent / name, digest))
        yield judged(f"signed file {name}", faults, "as it was signed")


class _InvalidError(ValueError):
    """A signature that is not valid, with the reason."""


def _verified(text: str, key: "SSlibKey", place: Path) -> tuple[str, str, dict[str, str]]:
    """The run, when it was signed, and the sha256 of each file; raises _InvalidError."""
    from securesystemslib.exceptions import VerificationError

    envelope = _envelope(text)
    if key.keyid not in envelope.signatures:
        keys = ", ".join(signature[:16] for signature in envelope.signatures) or "none"
        raise _InvalidError(
            f"it was made with another key (id {keys}) than that of {place} (id {key.keyid[:16]})"
        )
    try:
        envelope.verify([key], 1)
    except VerificationError as error:
        raise _InvalidError(
            f"it is not what the key of {place} signed; it was changed since, or forged"
        ) from error
    try:
        document = read_json(envelope.payload.decode())
        kinds = (document["_type"], document["predicateType"])
        digests = {subject["name"]: subject["digest"]["sha256"] for subject in document["subject"]}
        run, signed = (str(document["predicate"][name]) for name in ("run", "signed"))
    except (ValueError, KeyError, TypeError) as error:
        raise _InvalidError("what was signed is no statement about a report") from error
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE) or not digests:
        raise _InvalidError("what was signed is no statement about a report")
    if odd := [name for name in digests if not _is_name(name)]:
        raise _InvalidError(f"it names {odd[0]!r}, which is no file beside it")
    return run, signed, digests


def _envelope(text: str) -> "Envelope":
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import FormatError

    try:
        document = read_json(text)
        envelope = Envelope.from_dict(document)
    except (UnreadableError, ValueError, KeyError, TypeError, AttributeError, FormatError) as error:
        raise _InvalidError("it is no DSSE envelope; `report --sign` makes one") from error
    if envelope.payload_type != PAYLOAD_TYPE:
        raise _InvalidError(f"it is of {envelope.payload_type!r}, not of {PAYLOAD_TYPE!r}")
    return envelope


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(name) and PurePath(name).name == name and name != ".."


def _faults(path: Path, digest: str) -> Iterator[str]:
    try:
        present = file_digest(path)
    except FileNotFoundError:
        yield f"{path} is not there; put it beside its signature"
    except OSError as error:
        yield f"{path} cannot be read: {error.strerror}"
    else:
        if present != digest:
            yield f"{path} was changed since (sha256 {present[:12]}, signed {str(digest)[:12]})"
