"""What becomes of a shard's texts before anything of it is stored; see docs/privacy.md."""

from transexplain.privacy.guard import REDACTION_FAILED, Guard, guard_of
from transexplain.privacy.hooks import hook_file, load_hook, redaction_hook
from transexplain.privacy.keys import TEXT_KEY, TextKey

__all__ = [
    "REDACTION_FAILED",
    "TEXT_KEY",
    "Guard",
    "TextKey",
    "guard_of",
    "hook_file",
    "load_hook",
    "redaction_hook",
]
