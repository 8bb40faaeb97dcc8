import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from transexplain.analysis.groups.mention_matching import Matcher
from transexplain.analysis.groups.word_pieces import KeyFilter, Piece, pieces
from transexplain.types.items import EntityGroup

#: characters that shift offsets where somebody counts bytes, code units or folded letters
AWKWARD = (
    "🙂👩\u200d🔬🇩🇪❤\ufe0fe\u0301o\u0308\u0327ßİ\u0131ŉǰΐﬁªñ張あ"
    "\u00a0\u2028\u3000 \n\t.,;'\u2019-\u2011_2"
)


@given(st.text(alphabet=AWKWARD, max_size=40))
def test_a_piece_is_its_own_spelling(text: str) -> None:
    for piece in pieces(text):
        (again,) = pieces(text[piece.start : piece.end])
        assert (again.key, again.capitals) == (piece.key, piece.capitals)


@given(st.lists(st.text(alphabet=AWKWARD + "abcXYZ", max_size=8), max_size=6), st.data())
def test_a_surface_is_what_stands_between_its_offsets(parts: list[str], data) -> None:
    terms = ("Ann", "Zoë Müller", "Guinea-Bissau", "e\u0301", "👩\u200d🔬", "ß", "张")
    names = [data.draw(st.sampled_from(terms)) for _ in parts]
    text = " ".join(f"{part} {name}" for part, name in zip(parts, names, strict=True))
    found = Matcher([EntityGroup(name="g", terms=terms)]).search(text)
    assert not found.dropped
    for match in found.kept:
        assert text[match.start : match.end] == match.surface
        assert [piece.key for piece in pieces(match.surface)] in [
            [piece.key for piece in pieces(spelling)]
            for spelling in (match.entity, match.entity.replace("-", " "))
        ]


@given(st.text(alphabet=AWKWARD, max_size=20), st.text(alphabet=AWKWARD, max_size=20))
def test_no_form_of_unicode_hides_a_name(before: str, after: str) -> None:
    found_by = Matcher([EntityGroup(name="g", terms=("Zoë",))])
    for form in ("NFC", "NFD"):
        name = unicodedata.normalize(form, "Zoë")
        text = f"{before} {name} {after}"
        assert (len(before) + 1, name) in [(m.start, m.surface) for m in found_by.find(text)]


ASCII = "aAbB nNtT'-_.,3 \t"
KEYS = ("ann", "an-an", "don't", "bnt", "3", "a_b", "-", "é", "b")


@given(st.text(alphabet=ASCII + "é", max_size=30), st.sets(st.sampled_from(KEYS)))
def test_no_text_with_a_key_is_passed_over(text: str, keys: set[str]) -> None:
    assert KeyFilter(keys).may_hold(text) or keys.isdisjoint(one.key for one in pieces(text))


def test_texts_without_a_key_are_passed_over() -> None:
    assert not KeyFilter({"ann", "bob"}).may_hold("Annie met Bobby, and banned_ann.")
    assert KeyFilter({"ann", "bob"}).may_hold("So ANN's here")
    assert not KeyFilter({"ann", "-"}).may_hold("Annie met nobody")  # a key that is no word
    assert KeyFilter({"ann", "-"}).may_hold("so - so")


@given(st.text(alphabet=ASCII, max_size=30))
def test_plain_letters_are_cut_as_all_others(text: str) -> None:
    other = pieces(f"{text} é")[:-1]
    assert pieces(text) == other
    assert all(type(one) is Piece for one in pieces(text))
