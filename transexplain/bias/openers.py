"""Is the first word of a sentence a name, or the ordinary word? The words after it decide.

Every first word has a capital, so the capital decides nothing. But `Frank is` is not the adjective,
and `Jasmine told us` not the plant, while `Hope is` may be either, so it is no match. A word is of
one of three kinds by what it can be without an article: nothing that a verb follows (`Frank`,
`Mark`, `Jack`), a thing (`Hope`, `Jasmine`), or a person (`Judge`, `King`), after which the same
words may stand as after a name.
"""

import re
from collections.abc import Sequence

from transexplain.bias.words import Piece


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\s]+", text))


#: names that are adjectives, verbs, or nouns that need an article: no verb follows these
_NO_SUBJECT = _words(
    "barb bell bill bob buck bud carol carter chad chase chip chuck cliff colt constance crane "
    "daisy dale dean dick don dove drake drew dusty ed eve felicity finch forrest frank gene glen "
    "grant heath holly iris jack jay lance lane lily mark marsh martin mason melody miles nick "
    "noel pat peck penny pierce piper poppy randy raven ray reed rich rob robin rocky rod rusty "
    "sandy sharp sherry skip smith sonny sue stew taylor victor viola wade walker will woody "
    "worth wren"
)
#: names that are persons without an article, in headlines and short messages
_PERSONS = _words(
    "angel archer baker baron bishop buddy butler cook cooper duke earl fisher friend gardner guy "
    "hunter judge kid king knight lord love major marshal miller monk parker pope porter potter "
    "prince savage sawyer shepherd skipper star tanner weaver young"
)
#: of the first kind, adjectives: a participle, or a comma and `we`, may follow them
_ADJECTIVES = _words("dusty frank randy rich rocky rusty sandy sharp woody worth")
#: of the first kind, what headlines say was passed, approved or left out
_PASSED = _words("bill grant skip")
#: forms of verbs that some things do, too, or that are plurals of nouns
_FINITE = _words(
    "is was has had isn't wasn't hasn't hadn't does doesn't did didn't can can't could couldn't "
    "would wouldn't should shouldn't must mustn't might won't ain't got gets made makes lost "
    "loses found finds took takes gave gives looks looked seems seemed went goes came comes left "
    "leaves ran runs sat sits stood stands slept sleeps drove drives knew knows lives dies won "
    "wins sang sings paid pays sold sells taught teaches helps waits moves arrives returns walks "
    "drinks works calls texts reads talks speaks cries plays dances watches visits meets"
)
#: forms of verbs whose subject is a person
_OF_PERSONS = _words(
    "said says told tells asked asks answered answers replied replies thought thinks believed "
    "believes felt feels wanted wants liked likes loved loves hated hates hoped hopes wished "
    "wishes walked ate eats drank married marries met called phoned texted tweeted wrote writes "
    "spoke talked shouted laughed laughs smiled smiles nodded nods listened listens watched saw "
    "sees heard hears bought buys studied studies learned learns danced signed applied applies "
    "joined joins invited invites visited attended attends forgot forgets remembered remembers "
    "decided decides tried tries refused refuses agreed agrees admitted admits denied denies "
    "promised promises apologised apologized apologises apologizes complained complains explained "
    "explains wondered wonders woke wakes wore wears graduated graduates enjoyed enjoys insisted "
    "insists whispered whispers who whose who's who've"
)
#: what follows `works` of a person alone
_WORKS_AS = _words("as at for")
#: what only persons, and animals, are
_STATES = _words(
    "angry furious annoyed irritated enraged scared terrified anxious afraid fearful glad ecstatic "
    "elated excited disappointed devastated depressed miserable heartbroken upset sorry drunk "
    "asleep awake pregnant married divorced engaged single jealous tired hungry thirsty ill sick "
    "hired fired born arrested invited promoted qualified employed unemployed retired graduating "
    "studying applying working laughing crying smiling talking speaking reading writing walking "
    "eating drinking sleeping watching listening thinking"
)
#: what only persons are called
_ROLES = re.compile(
    r"(?:wo)?man|boy|girl|mother|father|mom|dad|sister|brother|daughter|son|wife|husband|aunt|uncle"
    r"|friend|nurse|doctor|lawyer|teacher|student|professor|manager|engineer|driver|writer|author"
    r"|singer|actor|actress|waiter|waitress|cook|chef|clerk|cleaner|farmer|baker|player|leader"
    r"|worker|neighbou?r|colleague|boss|cousin|person|kid|child|genius|idiot|hero|liar|fan|member"
    r"|candidate|applicant|employee|secretary|director|developer|programmer|plumber|electrician"
    r"|carpenter|officer|soldier|pilot|dentist|[a-z]{3,}(?:ist|ologist|ician|ographer)"
)
_COPULAS = _words("is was isn't wasn't")
_HERSELF = _words("himself herself")
_SPOKEN_TO = _words("you please i i'm who thanks we")
_AND = _words("and &")
_AUXILIARIES = _words("will may")
#: words that may stand between `is` and what somebody is
_MODIFIERS = 4
_REFLEXIVE = 4  #: pieces after the name in which `himself` is looked for


#: behind these an auxiliary or an imperative goes on: `Will you`, `Mark my words`
_OBJECTS = _words(
    "you u i we he she it they me him her us them my your his its our their the a an this that "
    "these those there em"
)


def may_be_named_elsewhere(word: str, after: Sequence[Piece]) -> bool:
    """Whether the opening `word` may be the name that the text has elsewhere, too.

    Words mostly keep one sense in a text (Gale, Church and Yarowsky 1992), auxiliaries do not.
    """
    if after and (after[0].key in _OBJECTS or after[0].key.isdigit()):
        return False
    return word not in _AUXILIARIES


def opens_as_name(word: str, after: Sequence[Piece]) -> bool:
    """Whether the words after `word`, which opens a sentence, show that it is a name.

    Args:
        word: in lower case.
        after: the pieces behind it, at least those of its sentence.
    """
    if not after or word in _PERSONS:
        return False
    keys = [piece.key for piece in after]
    if keys[0] == ",":
        free = word in _NO_SUBJECT and word not in _ADJECTIVES
        return len(keys) > 1 and keys[1] in (_SPOKEN_TO if free else ("who", "whose"))
    if word in _NO_SUBJECT and (keys[0] in _FINITE or _past(word, keys[0])):
        return True
    if keys[0] in _AND:
        with_name = len(after) > 1 and 0 in after[1].capitals and after[1].key != "i"
        return with_name and word in _NO_SUBJECT
    if keys[0] in _COPULAS:
        return _is_somebody(keys[1:])
    if keys[0] in ("works", "worked"):
        return len(keys) > 1 and keys[1] in _WORKS_AS
    reflexive = keys[1 : 1 + _REFLEXIVE]
    return keys[0] in _OF_PERSONS or any(one in _HERSELF for one in reflexive)


def _past(word: str, verb: str) -> bool:
    """Whether `verb` is what somebody did, and no participle: `Martin announced`."""
    return verb.endswith("ed") and word not in _ADJECTIVES and word not in _PASSED


def _is_somebody(keys: Sequence[str]) -> bool:
    """Whether what stands after `is` fits persons alone."""
    for key in keys[: _MODIFIERS + 1]:
        if not key[0].isalpha():
            return False
        if key in _STATES or _ROLES.fullmatch(key):
            return True
    return False
