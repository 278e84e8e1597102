"""Webhook signatures as specified by standardwebhooks.com: HMAC-SHA256 over id, timestamp and body, in three headers."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

from drumbeat.clock import SYSTEM, Clock
from drumbeat.durations import Duration, seconds
from drumbeat.errors import ConfigError

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
MIN_SECRET_BYTES = 16
_PREFIX = "whsec_"


def parse_keys(secret: str | Sequence[str]) -> list[bytes]:
    """The keys of one secret, or of several during a rotation. `whsec_...` is base64, anything else is used as it is."""
    secrets = [secret] if isinstance(secret, str) else list(secret)
    keys = [_parse_key(each) for each in secrets]
    if not keys or any(len(key) < MIN_SECRET_BYTES for key in keys):
        raise ConfigError(f"secret must have at least {MIN_SECRET_BYTES} bytes", "secret")
    return keys


def _parse_key(secret: str) -> bytes:
    if not isinstance(secret, str):
        raise ConfigError("secret must be text, or a list of texts", "secret")
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise ConfigError("secret must have base64 after whsec_", "secret") from error


def sign_headers(keys: Sequence[bytes], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers."""
    signatures = " ".join(f"v1,{_digest(key, id, str(timestamp), body)}" for key in keys)
    return {ID: id, TIMESTAMP: str(timestamp), SIGNATURE: signatures}


def _digest(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    content = b".".join((id.encode(), timestamp.encode(), body))
    return base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()


def verify_webhook(
    secret: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance: Duration = "5m",
    clock: Clock = SYSTEM,
) -> bool:
    """For receivers of webhooks: whether one of these secrets signed this body, within `tolerance` of now."""
    given = {name.lower(): value for name, value in headers.items()}
    id, timestamp = given.get(ID, ""), given.get(TIMESTAMP, "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 15):
        return False
    if abs(clock.now_us() / 1e6 - int(timestamp)) > seconds(tolerance, name="tolerance"):
        return False
    signatures = [part.removeprefix("v1,") for part in given.get(SIGNATURE, "").split() if part.startswith("v1,")]
    expected = [_digest(key, id, timestamp, body) for key in parse_keys(secret)]
    return any(hmac.compare_digest(one.encode(), other.encode()) for one in signatures for other in expected)
