"""Words with a fixed part in prompts. Everything else comes from the lexicon.

A word that stands in two lists belongs to the first that `tagging` asks.
"""

from __future__ import annotations

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _groups(**groups: str) -> dict[str, str]:
    """Word -> name of its group."""
    return {word: name for name, text in groups.items() for word in text.split()}


COLOURS: Final = _groups(
    red="red reddish scarlet",
    orange="orange",
    yellow="yellow yellowish",
    green="green greenish",
    blue="blue bluish",
    purple="purple violet",
    pink="pink pinkish",
    brown="brown brownish",
    black="black",
    white="white",
    gray="gray grey grayish greyish",
    gold="gold golden",
    silver="silver silvery",
    crimson="crimson",
    navy="navy",
    teal="teal turquoise",
    cyan="cyan aqua",
    magenta="magenta fuchsia",
    maroon="maroon burgundy",
    beige="beige tan",
    cream="cream ivory",
    lavender="lavender lilac",
    indigo="indigo",
    bronze="bronze",
    amber="amber",
    olive="olive",
    emerald="emerald",
    lime="lime",
    khaki="khaki",
    coral="coral",
    peach="peach",
    mint="mint",
    blond="blond blonde",
)
"""Two words of one row name one colour; a shade is another colour, since it shows."""

SIZES: Final = _groups(
    large="large big huge giant enormous gigantic massive oversized colossal",
    small="small little tiny miniature mini minuscule petite",
    medium="medium midsize midsized",
)

COUNTS: Final = _groups(
    one="one single lone solitary 1",
    two="two both pair couple 2 twin",
    three="three trio 3",
    four="four 4",
    five="five 5",
    six="six 6",
    seven="seven 7",
    eight="eight 8",
    nine="nine 9",
    ten="ten 10",
    eleven="eleven 11",
    twelve="twelve dozen 12",
    several="several some multiple various",
    few="few",
    many="many numerous countless hundreds thousands dozens lots",
    all="all every each",
)

TEXT_VERBS: Final = _words("say read write spell state")
TEXT_NOUNS: Final = _words(
    "text word letter lettering inscription title caption label message phrase"
)
"""What stands before a text in quotes and says no more than that it can be read there."""

NEGATIONS: Final = _words("no not without never none nobody nothing neither nor lacking minus")

DETERMINERS: Final = _words(
    "a an the this that these those its his her their my your our another any such what which whose"
)

PRONOUNS: Final = _words(
    "it he she they them him i we you me us itself himself herself themselves who whom "
    "someone something there here one's"
)

AUXILIARIES: Final = _words(
    "is are was were be been being am has have had having do does did can could will would may "
    "might must should 's 're"
)

CONJUNCTIONS: Final = _words("and or & plus as while but when where whereas then so than")

ADVERBS: Final = _words(
    "very really quite rather also just still too up down away out off over "
    "around together forward backward back along through across upwards downwards outside inside "
    "nearby apart forth once only even slightly slowly quickly gently softly far"
)
"""Adverbs that are prepositions before a noun are told apart there."""

FILLER_VERBS: Final = _words(
    "show depict display feature see view portray capture illustrate present contain include "
    "appear locate situate position place find look set exist stay remain seem have be"
)
"""Verbs that add nothing a picture shows beyond that the thing is there."""

FILLER_NOUNS: Final = _words(
    "photo photograph photography picture image pic snapshot shot scene view depiction "
    "illustration frame rendering representation tableau vignette visual video clip footage "
    "still composition"
)

MEDIA: Final = _groups(
    painting="painting oil watercolor watercolour acrylic canvas gouache fresco impasto mural",
    drawing="drawing sketch pencil charcoal doodle crayon lineart linework ink etching",
    cartoon="cartoon anime manga comic pixar disney ghibli",
    render="render cgi 3d voxel lowpoly isometric blender octane",
    pixel="pixel 8bit 16bit pixelart",
    sculpture="sculpture statue figurine origami lego claymation clay plush",
    print="poster woodcut linocut engraving blueprint logo icon sticker stamp silhouette",
    photo="polaroid daguerreotype tintype",
    mono="monochrome grayscale sepia noir",
)
"""What a picture is made in. Photographs are the default and count as nothing said."""

BOOSTERS: Final = _words(
    "detailed detail details highly ultra hyper super extremely insanely intricate resolution "
    "hd uhd hdr 4k 8k 16k 2k hires quality high hq masterpiece best professional professionally "
    "award-winning trending artstation cgsociety deviantart behance 500px unsplash flickr "
    "sharp focus crisp realistic realistically photorealistic photorealism hyperrealistic "
    "hyperrealism realism stunning beautiful beautifully gorgeous amazing awesome breathtaking "
    "exquisite elegant lovely impressive perfect epic nice pretty wonderful magnificent "
    "spectacular striking captivating fantastic vivid vibrant cinematic dramatic lighting casual "
    "aesthetic atmospheric atmosphere mood moody serene serenely tranquil peaceful peacefully calm "
    "cozy charming picturesque scenic idyllic majestic majestically dreamy whimsical delicate "
    "graceful gracefully style styled bokeh depth-of-field raytracing dynamic ordinary typical "
    "classic everyday standard normal actual visible clearly prominently"
)
"""Words about how well or in what mood something is pictured; they may come and go."""

EMPTY_NOUNS: Final = _words(
    "background day daytime daylight moment time way manner surface setting environment "
    "surroundings area corner side place kind type sort front object item ambiance tone "
)
"""Nouns that name nothing to be seen by themselves."""

DIRECTIONS: Final = _words(
    "up down away outside inside forward forwards backward backwards upwards downwards apart off"
)
"""Adverbs that a picture shows."""

TAG_HEADS: Final = _words(
    "shot lighting light angle view tone tones mood atmosphere look feel palette colors colours "
    "focus lens photo photograph picture image photography "
    "quality resolution aesthetic composition exposure contrast vibe"
)
TAG_WORDS: Final = _words(
    "casual professional documentary minimalist minimalistic modern urban rural lively vintage "
    "retro nostalgic classical classic wildlife nature intense daylight daytime natural indoor "
    "outdoor indoors outdoors bright dim warm cold soft hard low high key golden hour cinematic "
    "realistic romantic serene energetic playful mysterious dark moody colorful colourful abstract "
    "surreal fantasy futuristic elegant simple clean rustic cozy film grain shallow contemporary "
    "traditional dreamy whimsical tense joyful "
    "cheerful relaxed formal editorial commercial artistic"
)
"""What stands between commas at the end of a prompt and tells how to picture it all: "casual",
"indoor lighting", "wide shot". Elsewhere these words are read like all others."""

FRAMING: Final = _groups(
    close="close-up closeup macro portrait headshot",
    medium="medium-shot",
    wide="wide-shot wide-angle panorama panoramic long-shot full-body",
    aerial="aerial overhead bird's-eye top-down drone",
    low="low-angle",
    front="front-view",
    side="side-view profile",
    rear="rear-view back-view",
)

OPEN_PLACES: Final = _groups(
    left="left left-hand leftmost",
    right="right right-hand rightmost",
    top="top upper topmost",
    bottom="bottom lower",
    center="center centre middle central",
    in_foreground="forefront",
)
"""Where in the picture; "left" and "right" before "of" are relations instead."""

PHRASES: Final[dict[str, str]] = {
    "close up": "close-up",
    "wide shot": "wide-shot",
    "wide angle": "wide-angle",
    "long shot": "long-shot",
    "medium shot": "medium-shot",
    "full body": "full-body",
    "low angle": "low-angle",
    "top down": "top-down",
    "bird 's eye": "bird's-eye",
    "birds eye": "bird's-eye",
    "front view": "front-view",
    "side view": "side-view",
    "rear view": "rear-view",
    "back view": "back-view",
    "a pair of": "two",
    "a couple of": "two",
    "a trio of": "three",
    "a dozen": "twelve",
    "a group of": "several",
    "a bunch of": "several",
    "a few": "few",
    "snow covered": "snowy",
    "snow capped": "snowy",
    "covered in snow": "snowy",
    "covered with snow": "snowy",
    "a number of": "several",
    "lots of": "many",
    "a lot of": "many",
    "a large number of": "many",
    "hundreds of": "many",
    "thousands of": "many",
    "dozens of": "many",
    "to the left of": "left_of",
    "on the left of": "left_of",
    "on the left side of": "left_of",
    "to the left side of": "left_of",
    "at the left of": "left_of",
    "on left of": "left_of",
    "left of": "left_of",
    "to the right of": "right_of",
    "on the right of": "right_of",
    "on the right side of": "right_of",
    "to the right side of": "right_of",
    "at the right of": "right_of",
    "on right of": "right_of",
    "right of": "right_of",
    "in front of": "in_front_of",
    "on top of": "on",
    "on the top of": "on_top",
    "on the bottom of": "below",
    "at the back of": "behind",
    "next to": "near",
    "close to": "near",
    "adjacent to": "near",
    "by the side of": "near",
    "side by side with": "near",
    "depth of field": "depth-of-field",
    "award winning": "award-winning",
    "ray tracing": "raytracing",
    "unreal engine": "raytracing",
    "post processing": "raytracing",
    "high definition": "hd",
    "trending on": "trending",
    "along with": "and",
    "together with": "and",
    "accompanied by": "and",
    "as well as": "and",
    "made of": "of",
    "made out of": "of",
    "made from": "of",
    "filled with": "of",
    "full of": "of",
    "out of": "from",
    "away from": "away_from",
    "far from": "away_from",
    "in the middle of": "in_the_middle_of",
    "in the center of": "in_the_middle_of",
    "in the centre of": "in_the_middle_of",
    "in the style of": "style_of",
    "by the": "near the",
    "black and white": "monochrome",
    "such as": "like",
    "instead of": "without",
    "rather than": "without",
    "free of": "without",
    "devoid of": "without",
}
"""Several words that work as one; the longest that fits is taken."""

PREPOSITIONS: Final = _groups(
    on="on upon atop onto on_top",
    in_="in inside within into",
    at="at",
    above="above over",
    below="below under beneath underneath",
    left_of="left_of",
    right_of="right_of",
    in_front_of="in_front_of before",
    after="after",
    behind="behind",
    near="near beside alongside by",
    with_="with",
    of="of",
    from_="from",
    to="to towards toward",
    for_="for",
    against="against",
    between="between",
    among="among amongst amid amidst",
    through="through",
    across="across",
    along="along",
    around="around",
    past="past",
    during="during",
    about="about",
    like="like",
    away_from="away_from",
    middle="in_the_middle_of",
    style="style_of",
    outside="outside",
    off="off",
    down="down",
    up="up",
)

HAVING: Final = _groups(
    wearing="wearing wears wear",
    holding="holding holds hold carrying carries carry",
    with_="has have having featuring features containing contains",
)
"""Verbs that work as the preposition "with". What is worn is not held."""

RESULTS: Final = {"asleep": "sleep", "seated": "sit", "perched": "sit", "awake": "wake"}
"""Adjectives and participles that say what somebody does."""

STATES: Final = _words(
    "empty bare blank open closed shut dead alive broken intact burning melted rotten fresh naked "
    "nude half whole full lit unlit dirty clean messy tidy wet dry frozen crescent upside"
)
"""Qualities that make another picture of a thing, so that they never come or go."""

EITHER_SIDE: Final = _words(
    "grass street road boat beach lawn ship train bus plane airplane island farm field meadow tree "
    "sand snow water lake sea ocean river stage "
    "corner bench couch sofa chair armchair shore forest "
    "mountain hill sky lap arm wall"
)
"""Things that one is "on" or "in" without being elsewhere."""

ALIKE: Final = _groups(
    make="make build construct create prepare cook",
    walk="walk stroll wander",
    run="run sprint dash race jog gallop",
    jump="jump leap hop bound",
    sleep="sleep nap doze snooze slumber",
    eat="eat devour munch consume",
    drink="drink sip",
    look="look watch gaze stare",
    talk="talk speak chat converse",
    cry="cry weep sob",
    circle="circle disc disk",
    square="square box",
    triangle="triangle pyramid",
    cross="cross plus",
    ring="ring hoop",
    shout="shout scream yell",
    laugh="laugh giggle chuckle",
    smile="smile grin beam",
    fly="fly soar glide hover",
    sit="sit perch",
    cycle="cycle bike",
    crowded="crowded busy bustling",
    scared="scared afraid frightened terrified",
    angry="angry mad furious",
    happy="happy joyful cheerful glad",
    old="old elderly aged",
    fluffy="fluffy furry",
    shiny="shiny glossy gleaming",
    round="round circular",
    spooky="spooky eerie scary creepy",
    deserted="deserted abandoned",
    child="child kid youngster",
    baby="baby infant",
    woman="woman lady",
    man="man guy gentleman",
    rabbit="rabbit bunny",
    cat="cat kitty",
    kitten="kitten",
    cup="cup mug",
    airplane="airplane plane aeroplane",
    refrigerator="refrigerator fridge",
    forest="forest wood woodland",
    beach="beach shore seashore",
    sea="sea ocean",
    street="street road",
    path="path trail",
    rock="rock stone boulder",
    shop="shop store",
    dawn="dawn sunrise daybreak",
    dusk="dusk twilight nightfall",
    bicycle="bicycle bike",
    motorcycle="motorcycle motorbike",
    truck="truck lorry",
    television="television tv",
    phone="phone telephone cellphone smartphone mobile",
    flower="flower blossom bloom",
    meadow="meadow field pasture",
    doctor="doctor physician",
    policeman="policeman cop",
    sofa="sofa couch settee",
)
"""Words that name one picture where the lexicon has them apart. Words of two rows name two, though
the lexicon may have them together: to cry is not to shout. The shapes are those of flat
drawings."""

CONVERSE: Final = {
    "right_of": "left_of",
    "below": "above",
    "behind": "in_front_of",
}
"""Relations that say the same from the other side; the left name is rewritten to the right one."""
