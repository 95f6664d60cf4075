"""What the generated prompts are about.

Every list has a second half that only the held-out pairs use, so that no figure is about words the
scorer has seen. Groups of words are exchanged within themselves: an exchange changes the picture
and keeps the prompt sensible.
"""

from __future__ import annotations

from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


ANIMALS: Final = _words(
    "dog, cat, horse, cow, sheep, elephant, bear, zebra, giraffe, bird, rabbit, fox, wolf, lion, "
    "tiger, monkey, duck, owl, penguin, frog, turtle, deer, pig, goat, camel, squirrel, "
    "hedgehog, otter, parrot, swan, flamingo, koala, panda, kangaroo, raccoon, beaver, lizard, "
    "crocodile, dolphin, octopus, peacock, rooster, moose, leopard, gorilla, llama"
)
PEOPLE: Final = _words(
    "man, woman, boy, girl, child, farmer, chef, doctor, nurse, soldier, dancer, "
    "fisherman, artist, student, teacher, firefighter, astronaut, pilot, "
    "knight, wizard, queen, king, clown, sailor, cowboy, ballerina, monk, baker, "
    "mechanic, carpenter, waiter, photographer, skier, surfer"
)
OBJECTS: Final = _words(
    "ball, cup, bottle, chair, table, lamp, book, clock, vase, umbrella, backpack, suitcase, "
    "bicycle, car, bus, truck, boat, train, bench, couch, bed, bowl, plate, fork, spoon, knife, "
    "apple, banana, orange, pizza, cake, sandwich, carrot, laptop, phone, keyboard, "
    "television, refrigerator, oven, toaster, sink, mirror, candle, guitar, piano, drum, violin, "
    "kite, skateboard, surfboard, basket, bucket, ladder, hammer, box, teapot, pillow, blanket, "
    "hat, boot, glove, scarf, necklace, trumpet, telescope, microscope, compass, lantern, barrel, "
    "wheelbarrow, anchor, typewriter, radio, camera, globe, chessboard, pumpkin, pineapple, "
    "watermelon, mushroom, cactus, sunflower, tulip"
)
PLACES: Final = _words(
    "park, forest, desert, kitchen, bedroom, garden, library, classroom, market, station, harbor, "
    "meadow, cave, city, village, castle, museum, stadium, restaurant, church, factory, "
    "farm, beach, mountain, lake, river, swamp, jungle, canyon, glacier, vineyard, "
    "barn, attic, cellar, bakery, greenhouse, lighthouse, workshop, theater, laboratory"
)
COLOURS: Final = _words(
    "red, blue, green, yellow, black, white, brown, pink, purple, orange, gray, "
    "turquoise, beige, golden, silver, teal, maroon, crimson, lavender"
)
MATERIALS: Final = _words(
    "wooden, metal, glass, plastic, stone, leather, paper, ceramic, marble, brick, "
    "bronze, velvet, wicker, concrete, porcelain, rubber, crystal, bamboo"
)
SIZES: Final = (("big", "small"), ("huge", "tiny"), ("large", "little"))
MOODS: Final = _words("happy, sad, angry, scared, surprised, sleepy, bored, proud, worried, shy")
AGES: Final = (("young", "old"), ("elderly", "teenage"))
PATTERNS: Final = _words("striped, dotted, checkered, plain, floral, plaid")
TIMES: Final = _words(
    "at night, at noon, at sunrise, at sunset, at dawn, in the morning, in winter, "
    "in summer, in autumn, in spring"
)
WEATHER: Final = _words("rainy, sunny, snowy, foggy, stormy, cloudy, windy")
COUNTS: Final = _words("two, three, four, five, six, seven, eight")
STYLES: Final = _words(
    "an oil painting of, a watercolor of, a pencil sketch of, a cartoon of, a 3d render of, "
    "a pixel art of, a charcoal drawing of, an anime drawing of, a marble sculpture of, "
    "a woodcut of"
)
TEXTS: Final = _words(
    "open, closed, welcome, stop, hello, danger, sale, exit, coffee, pizza, danger"
)

MOTIONS: Final = (
    # Present participle, third person.
    ("running", "runs"), ("sleeping", "sleeps"), ("jumping", "jumps"), ("swimming", "swims"),
    ("walking", "walks"), ("dancing", "dances"), ("eating", "eats"), ("singing", "sings"),
    ("crying", "cries"), ("laughing", "laughs"), ("climbing", "climbs"), ("kneeling", "kneels"),
    ("crawling", "crawls"), ("yawning", "yawns"), ("shouting", "shouts"), ("praying", "prays"),
)  # fmt: skip
DEEDS: Final = (
    # Present participle, third person, past participle.
    ("chasing", "chases", "chased"), ("carrying", "carries", "carried"),
    ("pushing", "pushes", "pushed"), ("watching", "watches", "watched"),
    ("kissing", "kisses", "kissed"), ("hugging", "hugs", "hugged"),
    ("feeding", "feeds", "fed"), ("following", "follows", "followed"),
    ("painting", "paints", "painted"), ("washing", "washes", "washed"),
    ("pulling", "pulls", "pulled"), ("lifting", "lifts", "lifted"),
    ("photographing", "photographs", "photographed"), ("licking", "licks", "licked"),
    ("biting", "bites", "bitten"), ("greeting", "greets", "greeted"),
)  # fmt: skip

RELATIONS: Final = (
    # Wordings of one relation, wordings of its converse, a relation that contradicts it.
    (("left of", "to the left of", "on the left of"), ("right of", "to the right of"), "above"),
    (("right of", "to the right of", "on the right side of"), ("left of", "to the left of"),
    "below"), (("above", "over"), ("below", "under", "beneath"), "inside"),
    (("under", "below", "underneath"), ("above", "over"), "next to"),
    (("in front of",), ("behind",), "on top of"),
    (("behind",), ("in front of",), "under"),
    (("next to", "beside", "near"), ("next to", "beside"), "on top of"),
    (("on", "on top of"), (), "under"),
    (("in", "inside"), (), "behind"),
)  # fmt: skip

SYNONYMS: Final = (
    # Different words for one picture, kept apart from the lexicon on purpose.
    ("couch", "sofa"), ("bicycle", "bike"), ("car", "automobile"), ("television", "tv"),
    ("boy", "young boy"), ("child", "kid"), ("big", "large"), ("small", "little"),
    ("forest", "woods"), ("rabbit", "bunny"), ("kitchen", "kitchen"), ("photo", "picture"),
    ("phone", "telephone"), ("laptop", "laptop computer"), ("doctor", "physician"),
    ("theater", "theatre"), ("gray", "grey"), ("boat", "ship"), ("rock", "stone"),
    ("harbor", "harbour"), ("angry", "mad"), ("happy", "cheerful"), ("scared", "frightened"),
    ("airplane", "plane"), ("cup", "mug"), ("running", "sprinting"), ("jumping", "leaping"),
    ("watching", "looking at"), ("carrying", "holding"), ("refrigerator", "fridge"),
)  # fmt: skip

OPENINGS: Final = _words(
    "a photo of, a picture of, an image of, a photograph of, there is, a shot of"
)
ENDINGS: Final = (
    "highly detailed", "4k", "8k", "best quality", "sharp focus", "trending on artstation",
    "photorealistic", "high resolution", "masterpiece", "hd", "stunning", "beautiful",
    "realistic", "award winning photo", "cinematic", "intricate details", "professional photo",
    "dramatic lighting", "depth of field", "bokeh", "ultra realistic",
)  # fmt: skip
DETAILS: Final = (
    "The light is soft and warm, and long shadows fall across the ground.",
    "In the background, tall trees sway gently in a light breeze.",
    "The sky above is a clear blue with a few drifting clouds.",
    "Dust particles float in the air and catch the light.",
    "The colors are rich, and every texture is rendered with care.",
    "A narrow path leads past an old fence into the distance.",
    "The scene feels calm and quiet, like an early morning.",
    "Small puddles on the ground reflect the surroundings.",
    "The camera is close and captures fine detail.",
    "Far away, hills disappear in a bluish haze.",
    "The composition is balanced, with plenty of empty space around the subject.",
    "Warm tones dominate, with accents of deep orange and gold.",
    "The walls are covered with faded posters and ivy.",
    "The atmosphere is nostalgic, as in an old photograph.",
    "A gentle mist hangs low and softens the edges of everything.",
    "Polished surfaces gleam and mirror the lamps overhead.",
)  # fmt: skip
ADORNMENTS: Final = _words(
    "lovely, elegant, weathered, sturdy, shiny, graceful, rustic, sleek, charming, well-kept, "
    "delicate, vibrant, majestic, quaint, polished"
)
MANNERS: Final = _words("gently, playfully, quietly, proudly, slowly, calmly, eagerly, gracefully")


def share(words: tuple[object, ...], held_out: bool) -> tuple[object, ...]:
    """The words of one half: every second one is held out."""
    return words[1::2] if held_out else words[::2]
