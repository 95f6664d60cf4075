"""Pairs of prompts that mean different pictures, made from templates, by class of difference.

Each class is one way in which a comparison of words may overlook what a picture shows. Prompts are
short, so that nothing but the difference can be the reason of a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import Final

Pairs = Iterator[tuple[str, str]]

_BEINGS = ("man", "woman", "child", "dog", "robot")
_ANIMALS = ("cat", "dog", "horse", "bird")
_OBJECTS = ("car", "bus", "cup", "box", "book", "lamp")
_COLOURS = ("red", "blue", "green", "black", "white")


def said_behind_a_verb() -> Pairs:
    """What is said of the cat is not said of the dog."""
    groups = (
        (_ANIMALS, ("black", "wet", "happy", "asleep")),
        (_OBJECTS, ("red", "broken", "small")),
    )
    openings = (
        "a {a} and a {b}, the {x} is {q}",
        "a {a} next to a {b}. The {x} is {q}.",
        "a {a} and a {b} where the {x} is {q}",
        "a {a}, a {b}, and the {x} was {q}",
    )
    for nouns, qualities in groups:
        for a, b in permutations(nouns, 2):
            for quality, text in product(qualities, openings):
                yield tuple(text.format(a=a, b=b, x=x, q=quality) for x in (a, b))  # type: ignore[misc]


def roles_of_two_of_a_kind() -> Pairs:
    """Two men are two men: who wears what, and does what to whom."""
    deeds = (
        "punching",
        "chasing",
        "kissing",
        "painting",
        "feeding",
        "following",
        "carrying",
        "pointing at",
        "looking at",
        "behind",
        "to the left of",
        "in front of",
        "above",
    )
    marks = (
        ("in a red shirt", "in a blue shirt"),
        ("with a beard", "with a hat"),
        ("with a sword", "with a shield"),
        ("in a suit", "in a uniform"),
        ("wearing a crown", "wearing a helmet"),
        ("on a horse", "on a bicycle"),
        ("in red", "in blue"),
        ("with long hair", "with short hair"),
    )
    for being, deed, (one, other) in product(_BEINGS, deeds, marks):
        yield (
            f"a {being} {one} {deed} a {being} {other}",
            f"a {being} {other} {deed} a {being} {one}",
        )


def colours_and_sizes_exchanged() -> Pairs:
    texts = (
        "a {p} {a} and a {q} {b}",
        "a {p} {a} on a {q} {b}",
        "a {p} {a} chasing a {q} {b}",
        "{p} {a}, {q} {b}",
        "a {a} in {p} and a {b} in {q}",
    )
    values = [*permutations(_COLOURS[:3], 2), ("big", "small"), ("wooden", "metal"), ("old", "new")]
    for (p, q), (a, b), text in product(values, permutations(_OBJECTS[:4], 2), texts):
        yield text.format(p=p, q=q, a=a, b=b), text.format(p=q, q=p, a=a, b=b)


def counts_and_places_exchanged() -> Pairs:
    for (a, b), (m, n) in product(permutations(_ANIMALS, 2), (("two", "three"), ("one", "five"))):
        yield f"{m} {a}s and {n} {b}s", f"{n} {a}s and {m} {b}s"
    for a, b in permutations(_ANIMALS, 2):
        yield (
            f"a {a} on the left and a {b} on the right",
            f"a {a} on the right and a {b} on the left",
        )
        yield f"{a} on left, {b} on right", f"{b} on left, {a} on right"
        yield f"a {a} at the top, a {b} at the bottom", f"a {b} at the top, a {a} at the bottom"


def shades_exchanged() -> Pairs:
    for (a, b), (p, q) in product(permutations(_OBJECTS[:4], 2), permutations(_COLOURS[:3], 2)):
        yield f"a dark {p} {a} and a light {q} {b}", f"a light {p} {a} and a dark {q} {b}"
        yield f"a dark {p} and light {q} {a}", f"a light {p} and dark {q} {a}"


def negations_moved() -> Pairs:
    things = ("hat", "collar", "scarf", "bag")
    for (a, b), thing in product(permutations(_BEINGS[:4], 2), things):
        yield (
            f"a {a} without a {thing} and a {b} with a {thing}",
            f"a {a} with a {thing} and a {b} without a {thing}",
        )
        yield f"a {a} with no {thing}", f"a {a} with a {thing}"
        yield f"a {a}, not a {b}", f"a {b}, not a {a}"
        yield f"a {a} with a {thing}, no {b}", f"a {b} with a {thing}, no {a}"


def directions_exchanged() -> Pairs:
    ways = (("up", "down"), ("left", "right"), ("forward", "backward"))
    for (a, b), (p, q) in product(permutations(_BEINGS[:4], 2), ways):
        yield f"a {a} looking {p} at a {b} looking {q}", f"a {a} looking {q} at a {b} looking {p}"
        yield (
            f"a {a} pointing {p} and a {b} pointing {q}",
            f"a {a} pointing {q} and a {b} pointing {p}",
        )


def deeds_turned() -> Pairs:
    verbs = ("chasing", "carrying", "painting", "pulling", "looking at", "hitting", "feeding")
    for (a, b), verb in product(permutations(_BEINGS, 2), verbs):
        yield f"a {a} {verb} a {b}", f"a {b} {verb} a {a}"
    for a, b in permutations(_BEINGS, 2):
        yield f"a {a} giving flowers to a {b}", f"a {b} giving flowers to a {a}"
        yield f"the {a} gives the {b} a ball", f"the {b} gives the {a} a ball"
        yield f"a {a} bigger than a {b}", f"a {b} bigger than a {a}"
        yield f"a {a} running and a {b} sleeping", f"a {a} sleeping and a {b} running"


def order_in_time() -> Pairs:
    for (a, b), (x, y) in product(
        permutations(("man", "dog", "bird"), 2), permutations(("jump", "fall", "sleep", "run"), 2)
    ):
        for joint in (", then", " and then", ", afterwards", " before", " after", ", later"):
            yield f"a {a} {x}s{joint} a {b} {y}s", f"a {b} {y}s{joint} a {a} {x}s"
    for x, y in permutations(("sits down", "stands up", "jumps", "falls"), 2):
        for joint in ("then", "and then", "and"):
            yield f"a man {x} {joint} {y}", f"a man {y} {joint} {x}"


def words_of_logic() -> Pairs:
    for a, b in permutations(("cat", "dog", "tree", "car"), 2):
        yield f"a {a} or a {b}", f"a {a} and a {b}"
        yield f"a {a} or a {b}", f"a {a}, a {b}"
        yield (
            f"a room with everything but a {a} and a {b}",
            f"a room with everything and a {a} and a {b}",
        )
        yield f"all {a}s except a {b}", f"all {a}s and a {b}"
        yield f"zero {a}s near a {b}", f"{a}s near a {b}"
        yield f"not only a {a} but a {b}", f"only a {a}, a {b}"
        yield f"either a {a} or a {b}", f"both a {a} and a {b}"
        yield f"a {a} unless a {b}", f"a {a} and a {b}"
    for adverb in (
        "hardly",
        "barely",
        "almost",
        "nearly",
        "scarcely",
        "never",
        "no longer",
        "partly",
    ):
        for verb in ("smiling", "falling", "visible", "touching a wall", "burning"):
            yield f"a man {adverb} {verb}", f"a man {verb}"
    for a, b in (("barely", "clearly"), ("hardly", "fully"), ("partly", "completely")):
        yield f"a {a} visible ship", f"a {b} visible ship"


def other_relations() -> Pairs:
    inside, outside = ("inside", "in"), ("on top of", "atop")
    places = (
        "bus",
        "train",
        "boat",
        "plane",
        "ship",
        "lake",
        "mountain",
        "wall",
        "tree",
        "box",
        "car",
        "house",
    )
    for being, place, i, o in product(("man", "cat", "dog"), places, inside, outside):
        yield f"a {being} {i} a {place}", f"a {being} {o} a {place}"
    for being, place in product(
        ("man", "cat", "dog"), ("lake", "mountain", "wall", "tree", "box", "car")
    ):
        yield f"a {being} in a {place}", f"a {being} on a {place}"
        yield f"a {being} at a {place}", f"a {being} on a {place}"
        yield f"a {being} at a {place}", f"a {being} in a {place}"
    ways = ("away from", "left of", "above", "on", "in front of", "inside", "behind", "under", "at")
    for (a, b), way in product(permutations(("house", "car", "dog", "tree", "tower"), 2), ways):
        yield f"a {a} with a {b}", f"a {b} {way} a {a}"
    pairs = (
        ("towards", "away from"),
        ("over", "under"),
        ("through", "over"),
        ("across", "through"),
        ("along", "across"),
        ("around", "through"),
        ("into", "out of"),
        ("onto", "off"),
        ("past", "into"),
        ("near", "inside"),
        ("between", "behind"),
    )
    for being, (p, q), place in product(("man", "dog"), pairs, ("wall", "river", "house")):
        yield f"a {being} running {p} a {place}", f"a {being} running {q} a {place}"
    for thing in ("hat", "coat", "mask", "helmet"):
        yield f"a woman with a {thing}", f"a woman holding a {thing}"
        yield f"a woman wearing a {thing}", f"a woman holding a {thing}"
        yield f"a woman in a {thing}", f"a woman on a {thing}"
    for a, b in (("glass", "water"), ("chocolate", "nuts"), ("gold", "coins"), ("stone", "sand")):
        yield f"a box made of {a}", f"a box full of {a}"
        yield f"a bowl of {a} with {b}", f"a bowl of {b} with {a}"
    yield "a truck on fire", "a fire truck"
    yield "a glass of wine", "a wine glass"


LABELS: Final = (
    "vintage",
    "futuristic",
    "modern",
    "rustic",
    "dark",
    "bright",
    "warm",
    "cold",
    "colorful",
    "abstract",
    "surreal",
    "fantasy",
    "minimalist",
    "cheerful",
    "tense",
    "mysterious",
    "realistic",
    "dramatic",
    "serene",
    "indoors",
    "outdoors",
)


def labels_exchanged() -> Pairs:
    for a, b in permutations(LABELS, 2):
        yield f"a house by a river, {a}", f"a house by a river, {b}"
        yield (
            f"a portrait of a woman, {a} lighting, {b} colors",
            f"a portrait of a woman, {b} lighting, {a} colors",
        )
    for a, b in permutations(LABELS[:8], 2):
        yield f"a cat. {a}.", f"a cat. {b}."
        yield f"a cat, {a} light", f"a cat, {b} light"
        yield f"a cat, {a}, detailed, sharp focus, casual", f"a cat, {b}, detailed, sharp focus"


_SYMBOLS = "🐱🐶🔴🔵❤☠↑↓→←★☆♀♂€$£%#@=~^*"


def symbols() -> Pairs:
    for a, b in permutations(_SYMBOLS, 2):
        yield f"a sign with {a}", f"a sign with {b}"
    for a in _SYMBOLS:
        yield f"a sign {a} on a wall", "a sign on a wall"
    for a, b in permutations("🐱🐶🔴🔵", 2):
        yield f"a red {a} and a blue {b}", f"a red {b} and a blue {a}"
    for number in ("5", "12", "0.5"):
        yield f"a thermometer showing -{number} degrees", f"a thermometer showing {number} degrees"
        yield f"a {number}% full glass", f"a {number} full glass"
        yield f"a price of ${number}", f"a price of {number}€"
        yield f"a board with {number}+2", f"a board with {number}-2"
        yield f"a board with {number}*2", f"a board with {number}/2"
    yield "a clock showing 3:15", "a clock showing 3 and 15 numbers"
    yield "x² on a board", "x2 on a board"
    yield "a flag 🇩🇪 on a pole", "a flag 🇫🇷 on a pole"
    yield "a woman, (hat:1.4), (scarf:0.2)", "a woman, (hat:0.2), (scarf:1.4)"
    yield "[red] ball", "(red) ball"


def quoted_texts() -> Pairs:
    texts = (
        "STOP",
        "stop",
        "Stop!",
        "stop?",
        "st op",
        "$5",
        "€5",
        "5",
        "A-1",
        "A1",
        "C++",
        "C#",
        "don't",
        "do not",
        "and",
        "&",
        "x²",
        "x2",
        "Maße",
        "Masse",
        "🐱",
        "🐶",
    )
    for a, b in permutations(texts, 2):
        yield f'a sign that says "{a}"', f'a sign that says "{b}"'
        yield (
            f"a red wall with the text \u201c{a}\u201d",
            f"a red wall with the text \u201c{b}\u201d",
        )
    for a, b in (("open", "closed"), ("A", "B")):
        yield (
            f'a red sign that says "{a}" and a blue sign that says "{b}"',
            (f'a red sign that says "{b}" and a blue sign that says "{a}"'),
        )


_FOREIGN: Final[dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    # Language: template, two colours in two forms, nouns.
    "German": (
        "ein {p} {a} und ein {q} {b}",
        ("roter", "blauer", "grüner", "schwarzer"),
        ("Ball", "Würfel", "Hund", "Stuhl", "Tisch", "Vogel", "Hut", "Baum"),
    ),
    "Dutch": (
        "een {p} {a} en een {q} {b}",
        ("rode", "blauwe", "groene"),
        ("auto", "bus", "boot", "hond", "kat", "stoel"),
    ),
    "Russian": (
        "{p} {a} и {q} {b}",
        ("красный", "синий", "белый"),
        ("кот", "пёс", "дом", "стол", "мяч"),
    ),
    "Spanish": (
        "un {a} {p} y un {b} {q}",
        ("rojo", "azul", "verde", "negro"),
        ("perro", "gato", "coche", "libro", "barco"),
    ),
    "French": (
        "un {a} {p} et un {b} {q}",
        ("rouge", "jaune", "noir", "rose"),
        ("chien", "chat", "livre", "vase", "camion"),
    ),
    "Italian": (
        "un {a} {p} e un {b} {q}",
        ("rosso", "giallo", "nero"),
        ("cane", "gatto", "libro", "treno"),
    ),
    "Polish": (
        "{p} {a} i {q} {b}",
        ("czerwony", "niebieski", "czarny"),
        ("kot", "pies", "dom", "stół"),
    ),
    "Swedish": (
        "en {p} {a} och en {q} {b}",
        ("röd", "blå", "svart"),
        ("bil", "buss", "hund", "katt", "stol"),
    ),
    "Portuguese": (
        "um {a} {p} e um {b} {q}",
        ("vermelho", "azul", "preto"),
        ("cão", "gato", "carro", "livro"),
    ),
    "Turkish": (
        "{p} {a} ve {q} {b}",
        ("kırmızı", "mavi", "siyah"),
        ("kedi", "köpek", "araba", "masa"),
    ),
    "Hindi": ("{p} {a} और {q} {b}", ("लाल", "नीला", "काला"), ("घोड़ा", "कुत्ता", "कमरा")),
    "Greek": (
        "{p} {a} και {q} {b}",
        ("κόκκινος", "μαύρος", "λευκός"),
        ("σκύλος", "κύκλος", "γάτος"),
    ),
}


def other_languages() -> Pairs:
    for template, colours, nouns in _FOREIGN.values():
        for (p, q), (a, b) in product(permutations(colours, 2), permutations(nouns, 2)):
            yield template.format(p=p, q=q, a=a, b=b), template.format(p=q, q=p, a=a, b=b)
    deeds = (
        ("der Hund jagt den Mann", "den Mann jagt der Hund", "der Mann jagt den Hund"),
        ("un perro persigue a un gato", "", "un gato persigue a un perro"),
        ("un chien mord un homme", "", "un homme mord un chien"),
        ("лев слева от тигра", "", "тигр слева от льва"),
        ("лев видит тигр", "", "тигр видит лев"),
        ("猫が犬を追う", "", "犬が猫を追う"),
    )
    for text, _, turned in deeds:
        yield text, turned
    vowels = (
        ("नीली कार", "नीला कार"),
        ("एक काला घोड़ा", "एक काली घोड़ी"),
        ("लड़का", "लड़की"),
        ("नानी", "नाना"),
        ("काला", "कील"),
        ("แม่", "แม้"),
        ("หมา", "หมี"),
        ("ปลา", "ปลี"),
        ("மான்", "மீன்"),
        ("মা", "মি"),
        ("ছেলে", "ছিল"),
        ("כֶּלֶב", "כָּלָב"),
    )
    yield from vowels
    yield from ((f"{a} {b}", f"{b} {a}") for a, b in permutations(("лев", "тигр", "кот"), 2))


def merged_words() -> Pairs:
    for a, b in (
        ("a wrist watch", "a wrist gaze"),
        ("a steel beam", "a steel smile"),
        ("a town square", "a town box"),
        ("a wooden box", "a wooden square"),
        ("a pyramid", "a triangle"),
        ("a cross", "a plus"),
        ("a gold ring", "a gold hoop"),
        ("a wood table", "a forest table"),
        ("a football field", "a football meadow"),
        ("a baby mobile", "a baby phone"),
        ("a rock band", "a stone band"),
        ("a zombie", "a person"),
        ("a person on a bench", "a nun on a bench"),
        ("a person", "a baby"),
        ("a person", "a soldier"),
        ("a person", "a skeleton"),
        ("a horse race", "a horse sprint"),
        ("a hair brush", "a hair comb"),
        ("a soup bowl", "a soup roll"),
        ("a tennis racket", "a tennis noise"),
        ("a paper plane", "a paper airliner"),
        ("a sea bass", "a sea guitar"),
        ("a fly", "a glide"),
        ("a bow tie", "an arrow tie"),
        ("a light box", "a lamp box"),
        ("a sun bath", "a sun tub"),
        ("a disc", "a circle"),
        ("a bike ride", "a cycle ride"),
        ("a computer mouse", "a computer rat"),
        ("a dash", "a run"),
        ("a hop", "a jump"),
    ):
        for text in ("{}", "{} in a room", "a red car and {}"):
            yield text.format(a), text.format(b)


def qualities_that_make_another_thing() -> Pairs:
    kinds = (
        "headless",
        "skeletal",
        "undead",
        "invisible",
        "transparent",
        "robotic",
        "inverted",
        "wooden",
        "mechanical",
        "winged",
        "three-legged",
        "one-eyed",
        "dead",
        "burning",
        "naked",
        "upside-down",
        "distorted",
        "metallic",
        "glass",
        "stone",
        "pregnant",
        "female",
        "male",
        "zombie",
        "toy",
        "ghostly",
        "flying",
        "headless",
    )
    for kind, being in product(kinds, ("man", "horse", "dog")):
        yield f"a {kind} {being} in a street", f"a {being} in a street"
    for state in (
        "snowy",
        "rainy",
        "flooded",
        "foggy",
        "stormy",
        "ruined",
        "burning",
        "empty",
        "underwater",
        "floating",
        "frozen",
        "sunny",
    ):
        yield f"a {state} street with a man", "a street with a man"
    for where in (
        "underwater",
        "underground",
        "upside down",
        "barefoot",
        "ashore",
        "offshore",
        "sideways",
        "apart",
        "backwards",
        "overhead",
        "clockwise",
    ):
        yield f"a man walking {where}", "a man walking"


def modifiers_in_another_order() -> Pairs:
    for a, b, head in (
        ("milk", "chocolate", "bar"),
        ("toy", "car", "box"),
        ("paper", "flower", "bag"),
        ("horse", "race", "track"),
        ("apple", "tree", "house"),
        ("stone", "bridge", "wall"),
    ):
        yield f"a {a} {b} {head}", f"a {b} {a} {head}"
        yield f"a {a} {b}", f"a {b} {a}"
        yield f"a {a} {head} on a {b}", f"a {b} {head} on a {a}"
    yield "a pencil drawing of a brush", "a brush drawing of a pencil"
    yield "an ink drawing of a pencil", "a pencil drawing of an ink"
    yield "a painting of a statue", "a statue of a painting"


def clauses_moved() -> Pairs:
    for (a, b), q in product(
        permutations(_BEINGS[:4], 2), ("smiling", "sitting", "on fire", "wet")
    ):
        yield f"a {a} looking at a {b} who is {q}", f"a {a} who is {q} looking at a {b}"
        yield f"a {a} with a {b} that is {q}", f"a {a} that is {q} with a {b}"
    for (a, b), thing in product(permutations(_BEINGS[:4], 2), ("binoculars", "a stick")):
        yield f"a {a} looking at a {b} with {thing}", f"a {a} with {thing} looking at a {b}"
    yield "a dragon on a castle that is burning", "a burning dragon on a castle"
    yield "a doctor and her dog", "a doctor and his dog"
    yield "a teacher who lost his bag", "a teacher who lost her bag"
    yield "he is reading a book", "she is reading a book"


def rewrites_that_say_something_else() -> Pairs:
    yield from (
        (
            "a man with a gun",
            "A young woman holds a large silver gun while a man with a camera films "
            "her from behind a parked car on a busy city street",
        ),
        (
            "a boy holding a balloon",
            "A little girl is holding a bright red balloon in the middle of "
            "a green field while a boy stands far behind her and watches with sad eyes",
        ),
        (
            "a statue of a man",
            "A man with a camera photographs a tall bronze statue of a horse in the "
            "middle of a busy square surrounded by old stone buildings and many tourists",
        ),
        (
            "an empty street",
            "A long street full of people, cars and market stalls with colorful "
            "umbrellas, and an empty bottle lying in the gutter beside a sleeping dog at noon",
        ),
        (
            "a dog in a park",
            "An oil painting of a dog in a park at night, with a burning city skyline "
            "behind it, soldiers marching, helicopters in the sky and a giant robot spider",
        ),
        (
            "a dog chasing a cat",
            "A large grey cat with bright green eyes turns around and sees that it "
            "is chasing a frightened brown dog through a sunny garden full of tall flowers",
        ),
        (
            "a man kissing a woman",
            "A tall woman in a flowing white summer dress leans forward and slaps "
            "a man after kissing another man in a crowded noisy train station at noon",
        ),
        (
            "a horse without a rider",
            "A brown horse gallops along a beach with a rider in a red jacket, "
            "and a second horse stands without a saddle near the water under a grey sky",
        ),
        (
            "a man not smiling",
            "An old man with a long grey beard and deep wrinkles is smiling broadly, "
            "not looking at the viewer, in front of a stone wall covered with ivy",
        ),
    )
    frame = (
        "In a quiet old town square full of flowers and warm evening light, {}, while tall trees "
        "sway gently behind the low stone walls and narrow wooden benches."
    )
    for (a, b), verb in product(
        permutations(_BEINGS[:4], 2), ("holding", "reading", "carrying", "kicking")
    ):
        yield (
            f"a {a} {verb} a book",
            frame.format(f"a {b} is {verb} a book and a {a} stands near a lamp"),
        )
    for (a, b), thing in product(permutations(_BEINGS[:4], 2), ("gun", "hat", "sword", "bag")):
        yield f"a {a} with a {thing}", frame.format(f"a {b} with a {thing} looks at a {a}")
    for (a, b), verb in product(permutations(_BEINGS[:4], 2), ("running", "sleeping", "dancing")):
        yield f"a {a} {verb}", frame.format(f"a {b} is {verb} and a {a} stands near a lamp")
    for (a, b), state in product(
        permutations(_OBJECTS[:4], 2), ("empty", "broken", "burning", "wet")
    ):
        yield f"a {state} {a}", frame.format(f"a {state} {b} stands near a {a}")


def doers_in_one_word() -> Pairs:
    """Who does it and to whom it is done, told apart by a hyphen alone."""
    for (a, b), verb in product(
        permutations(_BEINGS[:5], 2), ("riding", "carrying", "eating", "watching", "walking")
    ):
        yield f"a {a}-{verb} {b}", f"a {a} {verb} a {b}"
        yield f"two {a}-{verb} {b}s in a park", f"a {a} {verb} two {b}s in a park"


def what_is_made_of_it() -> Pairs:
    """Words that make something else of a thing, or of who lives."""
    yield "a hot dog on a plate", "a dog on a plate"
    yield "two hot dogs", "two dogs"
    for state, thing in product(("cooked", "roasted", "stuffed", "raw"), ("chicken", "fish")):
        yield f"a {state} {thing}", f"a {thing}"
    for state, thing in product(("hanged", "beheaded", "decapitated"), ("man", "woman", "statue")):
        yield f"a {state} {thing} in a square", f"a {thing} in a square"


CLASSES: Final[tuple[Callable[[], Pairs], ...]] = (
    said_behind_a_verb,
    roles_of_two_of_a_kind,
    colours_and_sizes_exchanged,
    counts_and_places_exchanged,
    shades_exchanged,
    negations_moved,
    directions_exchanged,
    deeds_turned,
    order_in_time,
    words_of_logic,
    other_relations,
    labels_exchanged,
    symbols,
    quoted_texts,
    other_languages,
    merged_words,
    qualities_that_make_another_thing,
    modifiers_in_another_order,
    clauses_moved,
    rewrites_that_say_something_else,
    doers_in_one_word,
    what_is_made_of_it,
)

KNOWN_WRONG: Final = (
    (
        "a dog in a park",
        "A flooded park without people, in the middle a dog made of ice melts on "
        "an upside down bench while hundreds of cats dance around it on a lake of lava",
    ),
)
"""Wrong hits that the rules have no answer to yet; docs/gate.md names them."""
