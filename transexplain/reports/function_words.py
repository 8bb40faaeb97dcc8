"""Recognises words that say little by themselves: punctuation, and function words of English."""

import unicodedata

#: articles, pronouns, prepositions, conjunctions and auxiliaries; no negation, no quantity and no
#: word of degree is among them, since these carry what a classifier may rest on
_LISTED = """
a an the this that these those
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
who whom whose which what one oneself
about above across after against along among around as at before behind below beneath beside
between beyond by during for from in inside into like near of off on onto out outside over
past per since through throughout to toward towards under until up upon via with within
and or if because while whereas although though so than then when where whether how why there
be am is are was were been being do does did doing done have has had having
can could may might must shall should will would
s 's t 't d 'd ll 'll m 'm re 're ve 've
"""
_FUNCTION_WORDS = frozenset(_LISTED.split())


def says_little(word: str) -> bool:
    """Whether a word is punctuation or a function word; lists of words show it last."""
    bare = word.strip().casefold()
    if bare in _FUNCTION_WORDS:
        return True
    return not any(unicodedata.category(letter)[0] in "LN" for letter in bare)
