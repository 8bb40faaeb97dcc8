"""What a report says of texts that are not stored."""

from collections.abc import Iterator

from transexplain.plans import PrivacyPlan, StoreText

_KEPT: dict[StoreText, str] = {
    "full": "",
    "hashed": (
        "The texts are not stored (store_text: hashed): each word stands as 12 digits of a keyed "
        "hash, the same for the same word. Spellings of mentions, metadata and entities that the "
        "data name are hashed, too; messages of errors are not kept. Words as frequent as a group "
        "are not reported, because the words of a group cannot be distinguished from others."
    ),
    "none": (
        "The texts are not stored (store_text: none): a block stands for each word. There are no "
        "lists of words, and spellings of mentions, metadata and messages of errors are not kept."
    ),
}


def privacy_notes(asked: PrivacyPlan | None) -> Iterator[str]:
    """What was kept of the texts, and why the report shows no more."""
    if asked is None:
        return
    if asked.store_text != "full":
        yield (
            f"{_KEPT[asked.store_text]} All numbers were computed from the texts themselves before "
            "anything was stored. Names of the lexicon's entities stay, and item ids."
        )
    elif asked.redact:
        yield (
            f"Texts were blanked (\N{FULL BLOCK}) where {asked.redact} said so, by whole words, "
            "before they were stored; blanked words are in no list of words. All numbers besides "
            "were computed from the texts themselves."
        )
