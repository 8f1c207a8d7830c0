"""E2E NLG (Novikova et al., 2017): a meaning such as ``name[The Mill], area[riverside]``, and texts that people wrote about it.

`e2e` turns a record into an example. `wrong_slots` checks a text: which slots of the meaning it does not mention, and which other food or
area it names. Names and food must be there word by word, without regard to case and accents. The other slots are found by patterns of
synonyms, written for the values of the data set; any other value must be there word by word.

Of the human texts of the development and test set, 93 % and 92 % of the slots pass, and 72 % and 67 % of the texts pass in all slots; the
rest mostly leaves slots out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .definition import Example, text_of, texts_of

SLOT = re.compile(r"\s*([\w ]+?)\[([^\]]*)\]\s*(?:,|$)")
_DIGIT = {"1": "1|one", "3": "3|three", "5": "5|five"}
_RATING = r"(?:rat(?:ed|ings?|es?)|reviews?|reviewed|customers?|scores?|recommend\w*|ranked|ranking|stars?|satisfaction|quality|regarded)"
_PRICE = r"(?:pric\w+|cost\w*|range|expensive|meals?|food|dining|dishes|menu|rates?)"
_LOW = r"(?:low\w*|poor\w*|bad\w*|terribl\w+|not (?:very |so |particularly )?(?:good|well|high\w*)|below average|1|one|negative)"
_AVERAGE = r"(?:average\w*|decent\w*|moderate\w*|mediocre|ok(?:ay)?|middling|fair\w*|mid\w*|3|three|medium)"
_HIGH = r"(?:high\w*|great|excellent\w*|good|well|top|best|outstanding|superb|5|five|positive|popular|loved|amazing|perfect|exceptional)"
_CHEAP = r"(?:cheap\w*|low\w*|inexpensive\w*|budget|affordabl\w+|reasonabl\w+|bargain|economical|not (?:too |very )?expensive|20)"
_MODERATE = r"(?:moderate\w*|mid\w*|average\w*|reasonabl\w+|medium|fair\w*|affordabl\w+|decent\w*|modest\w*|25)"
_DEAR = r"(?:high\w*|expensive|pric(?:e)?y|upscale|costly|upper|premium|pricier|above average|30|steep|dear)"
_CHILD = r"(?:famil(?:y|ies)|kids?|child(?:ren)?(?:s)?|child's)"
_NOT = r"(?:not?|non|isn't|aren't|doesn't|don't|never|without|unsuitable|unfriendly|lacks?|cannot|can't|nor|isnt|discourag\w+)"
_NO_CHILD = rf"\b{_NOT}\b.{{0,40}}\b{_CHILD}|\b{_CHILD}.{{0,25}}(?:\b{_NOT}\b|unfriendly)"


def _near(word: str, about: str) -> str:
    """Both in one clause, in any order: at most five words between them."""
    between = r"(?:[\s,\-/]+[\w'£.\-]+){0,5}?[\s,\-/]+"
    return rf"\b{word}\b{between}{about}\b|\b{about}{between}{word}\b"


PATTERNS: dict[str, dict[str, str]] = {
    "eatType": {
        "restaurant": r"\brestaurants?|\bdin(?:er|ing|e)\b|\beater(?:y|ies)|\bbistro|\bplace to eat|\bcuisine|\bserv(?:es|ing)|\bfood",
        "coffee shop": r"\bcoffee|\bcafe",
        "pub": r"\bpubs?\b|\bbars?\b|\btavern",
    },
    "area": {
        "riverside": r"\briver|\bwaterside|\bwaterfront|\bby the water",
        "city centre": r"\b(?:city|town)[\s\-]*(?:cent(?:re|er)|area)|\bcent(?:re|er|ral)\b|\bdowntown|\bin (?:the )?city|\bheart of",
    },
    "priceRange": {
        "cheap": rf"\bcheap|\binexpensive|\bbudget|\blow[\s\-]*(?:cost|pric)|{_near(_CHEAP, _PRICE)}",
        "less than £20": rf"\b(?:20|twenty)\b|\bcheap|\binexpensive|\blow[\s\-]*(?:cost|pric)|{_near(_CHEAP, _PRICE)}",
        "moderate": rf"\bmoderate|\bmid[\s\-]*(?:range|pric)|{_near(_MODERATE, _PRICE)}",
        "£20-25": rf"\b(?:20|twenty)\b.{{0,20}}\b(?:25|twenty[\s\-]five)\b|\bmoderately[\s\-]pric|{_near(_MODERATE, _PRICE)}",
        "high": rf"\bexpensive|\bpricey|\bhigh[\s\-]*(?:end|pric|cost)|\bupscale|{_near(_DEAR, _PRICE)}",
        "more than £30": rf"\b(?:30|thirty)\b|\bexpensive|\bhigh[\s\-]*(?:end|pric|cost)|{_near(_DEAR, _PRICE)}",
    },
    "customer rating": {
        "low": _near(_LOW, _RATING),
        "average": _near(_AVERAGE, _RATING),
        "high": _near(_HIGH, _RATING),
        **{
            f"{digit} out of 5": rf"\b(?:{words})[\s\-]*(?:(?:out[\s\-]*)?of|/)[\s\-]*(?:5|five)|\b(?:{words})[\s\-]*stars?\b|"
            + _near(other, _RATING)
            for (digit, words), other in zip(_DIGIT.items(), (_LOW, _AVERAGE, _HIGH), strict=True)
        },
    },
    "familyFriendly": {
        "yes": rf"\b{_CHILD}",
        "no": rf"{_NO_CHILD}|\badults?\b",
    },
    "food": {"English": r"\benglish|\bbritish", "Fast food": r"\bfast[\s\-]*food"},
}
FOODS = ("Chinese", "English", "Fast food", "French", "Indian", "Italian", "Japanese")


def slots_of(meaning: str) -> dict[str, str]:
    """The slots of a meaning.

    >>> slots_of("name[The Mill], area[riverside], familyFriendly[yes]")
    {'name': 'The Mill', 'area': 'riverside', 'familyFriendly': 'yes'}
    """
    found = dict(SLOT.findall(meaning))
    if not found or SLOT.sub("", meaning).strip():
        raise ValueError(f"{meaning[:80]!r} is not a meaning; legal: slot[value], slot[value], ...")
    return found


def plain(text: str) -> str:
    """The text in lower case, without accents, with single spaces.

    >>> plain("Café  Rouge’s  ")
    "cafe rouge's"
    """
    letters = unicodedata.normalize("NFKD", text.replace("’", "'").lower())
    return " ".join("".join(one for one in letters if not unicodedata.combining(one)).split())


def wrong_slots(meaning: str, text: str) -> list[str]:
    """The slots of the meaning that the text does not mention, or contradicts by another food or area.

    >>> wrong_slots("name[The Mill], area[riverside], familyFriendly[no]", "The Mill by the river is family friendly.")
    ['familyFriendly']
    >>> wrong_slots("name[The Mill], food[French]", "The Mill serves French and Italian food.")
    ['food']
    """
    slots, said = slots_of(meaning), plain(text)
    rest = said
    for slot in ("name", "near"):
        if slot in slots:
            rest = rest.replace(_bare(slots[slot]), "_")
    found = {
        slot for slot, value in slots.items() if not _mentions(slot, value, said if slot in ("name", "near") else rest)
    }
    if slots.get("familyFriendly") == "yes" and _compiled(_NO_CHILD).search(rest):
        found.add("familyFriendly")
    if "food" in slots and any(_mentions("food", food, rest) for food in FOODS if food != slots["food"]):
        found.add("food")
    if "area" in slots and any(_mentions("area", one, rest) for one in PATTERNS["area"] if one != slots["area"]):
        found.add("area")
    return [slot for slot in slots if slot in found]


def _bare(value: str) -> str:
    return plain(value).removeprefix("the ")


def _mentions(slot: str, value: str, said: str) -> bool:
    pattern = PATTERNS.get(slot, {}).get(value)
    if pattern is None:
        return _bare(value) in said
    return _compiled(pattern).search(said) is not None


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def says_all(facts: Mapping[str, Any], text: str) -> bool:
    """Whether every slot of the meaning is right in the text.

    >>> says_all({"meaning": "name[The Mill], area[riverside]"}, "The Mill is by the river.")
    True
    """
    return not wrong_slots(facts["meaning"], text)


def words(facts: Mapping[str, Any], text: str) -> str:
    """The words of a text in lower case, without accents and punctuation. Texts with the same words count as one.

    >>> words({}, "The Mill -  it's by the river!") == words({}, "the mill, it’s by the river.")
    True
    """
    return " ".join(re.findall(r"[\w'£]+", plain(text)))


def e2e(record: Mapping[str, Any]) -> Example:
    """The meaning and a line end, then a text.

    Accepted fields: ``mr`` and ``ref``, one text per record (the published .csv files); or ``mr`` and ``refs``, all texts of a meaning.

    >>> e2e({"mr": "name[The Mill]", "ref": "The Mill is open."})[:2]
    ('name[The Mill]\\n', 'The Mill is open.')
    """
    meaning = text_of(record, "mr").strip()
    slots_of(meaning)
    texts = texts_of(record, "refs") if "refs" in record else [text_of(record, "ref", empty=True, default="")]
    if not texts:
        raise ValueError("'refs' must hold at least one text")
    return Example(f"{meaning}\n", texts[0].strip(), {"meaning": meaning, "references": [one.strip() for one in texts]})
