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

NEGATIONS: Final = _words("no not without never none nobody nothing neither nor lacking minus zero")

LOGIC: Final = _words(
    "or but except then than if unless until either whether instead otherwise "
    "hardly barely scarcely almost nearly partly partially rarely seldom formerly only even "
    "afterwards afterward later finally previously before after once "
    "could would might must should will may cannot"
)
"""Words that change what a sentence says of its things: alternatives, exceptions, order in time,
what is nearly or not yet. They must be the same in both prompts."""

FEMALE: Final = _words("she her hers herself")
MALE: Final = _words("he him his himself")

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

CONJUNCTIONS: Final = _words(
    "and or plus as while but when where whereas then so than except if unless until either whether"
)

ADVERBS: Final = _words(
    "very really quite rather also just still too up down away out off over "
    "around together forward backward back along through across upwards downwards outside inside "
    "nearby apart forth once only even slightly slowly quickly gently softly far indoors outdoors "
    "underwater underground overhead sideways aloft ashore offshore clockwise counterclockwise "
    "uphill downhill upstairs downstairs north south east west"
)
"""Adverbs that are prepositions before a noun are told apart there."""

EMPTY_ADVERBS: Final = _words(
    "very really quite rather also just still too slightly slowly quickly gently softly far nearby "
    "forth so as here there now often always usually well together along neatly"
)
"""Adverbs that show nothing of their own, as do those in "-ly" that are no word of logic."""

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

MOODS: Final = _words(
    "realistic realistically photorealistic photorealism hyperrealistic hyperrealism realism "
    "vivid vibrant cinematic dramatic aesthetic atmospheric moody serene serenely tranquil "
    "peaceful peacefully calm cozy dreamy whimsical delicate majestic majestically elegant "
    "graceful gracefully epic dynamic classic"
)
"""How a picture looks and feels. One prompt may say it alone; two that say different things of it
ask for different pictures."""

BOOSTERS: Final = MOODS | _words(
    "detailed detail details highly ultra hyper super extremely insanely intricate resolution "
    "hd uhd hdr 4k 8k 16k 2k hires quality high hq masterpiece best professional professionally "
    "award-winning trending artstation cgsociety deviantart behance 500px unsplash flickr "
    "sharp focus crisp stunning beautiful beautifully gorgeous amazing awesome breathtaking "
    "exquisite lovely impressive perfect fantastic nice pretty wonderful magnificent "
    "spectacular striking captivating lighting casual atmosphere mood charming picturesque scenic "
    "idyllic style styled bokeh depth-of-field raytracing ordinary typical "
    "everyday standard normal actual visible clearly prominently"
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
    "shot lighting light angle view tone tones mood atmosphere look feel palette color colors "
    "focus lens photo photograph picture image photography "
    "quality resolution aesthetic composition exposure contrast vibe"
)
TAG_WORDS: Final = _words(
    "casual professional documentary minimalist minimalistic modern urban rural lively vintage "
    "retro nostalgic classical classic wildlife nature intense daylight daytime natural indoor "
    "outdoor indoors outdoors bright dim warm cold soft hard low high key golden hour cinematic "
    "realistic romantic serene energetic playful mysterious dark moody colorful abstract "
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
    high="high-angle",
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
    "hot dog": "hotdog",
    "hot dogs": "hotdogs",
    "wide shot": "wide-shot",
    "wide angle": "wide-angle",
    "long shot": "long-shot",
    "medium shot": "medium-shot",
    "full body": "full-body",
    "low angle": "low-angle",
    "high angle": "high-angle",
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
    "on top of": "on_top",
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
    "made of": "made_of",
    "made out of": "made_of",
    "made from": "made_of",
    "filled with": "full_of",
    "full of": "full_of",
    "upside down": "upside-down",
    "no longer": "not",
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
    on="on upon onto",
    on_top="on_top atop",
    in_="in within into",
    inside="inside",
    at="at",
    above="above over",
    below="below under beneath underneath",
    left_of="left_of",
    right_of="right_of",
    in_front_of="in_front_of",
    before="before",
    after="after",
    behind="behind",
    near="near beside alongside by",
    with_="with",
    of="of",
    made_of="made_of",
    full_of="full_of",
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

RESULTS: Final = {
    "asleep": "sleep",
    "seated": "sit",
    "perched": "sit",
    "awake": "wake",
    "hanged": "execute",
}
"""Adjectives and participles that say what somebody does or was done to."""

STATES: Final = _words(
    "empty bare blank open closed shut dead alive broken intact burning melted rotten fresh naked "
    "nude half whole full lit unlit dirty clean messy tidy wet dry frozen crescent upside "
    "upside-down barefoot topless skeletal undead ghostly invisible transparent translucent "
    "robotic mechanical inverted mirrored distorted blurry blurred winged legged eyed armed "
    "headed horned tailed fingered bearded bald blind pregnant female male human bloody ruined "
    "crashed destroyed damaged collapsed flooded submerged floating flying underwater underground "
    "snowy rainy foggy misty stormy sunny cloudy windy icy artificial fake plastic toy miniature "
    "striped spotted mutant demonic angelic cyborg giant alone indoor outdoor decapitated "
    "beheaded cooked roasted fried grilled baked raw skinned stuffed peeled sliced chopped crushed "
    "crucified mummified petrified fossilized carved painted printed drawn sculpted origami"
)
"""Qualities that make another picture of a thing, so that they never come or go. So do those in
"-less" but for `PRAISE`."""

PRAISE: Final = _words(
    "seamless flawless timeless endless boundless priceless effortless countless limitless"
)

MATERIALS: Final = _words(
    "wooden wood metal metallic glass plastic stone leather paper ceramic marble brick bronze "
    "velvet wicker concrete porcelain rubber crystal bamboo iron steel copper clay wax ice lego "
    "woolen knitted felt chocolate"
)
"""A wooden table is a table, a wooden cat no cat: of what lives they never come or go."""

SHADES: Final = _words("dark light pale deep bright neon pastel")
"""What a colour behind it is a shade of."""

CLOTHES: Final = _words(
    "dress shirt suit hat coat jacket uniform robe gown costume armor armour scarf skirt pants "
    "trousers jeans shorts sweater hoodie boot shoe glasses sunglasses mask helmet cape cloak "
    "kimono tuxedo apron crown glove sock sandal vest raincoat swimsuit bikini pajamas outfit "
    "clothes clothing attire blouse tie cap turban veil hood bonnet spacesuit overalls sari"
)
"""What is worn: who is in it, with it or wearing it looks alike; who holds it does not."""

HOLDERS: Final = _words(
    "plate bowl table tray basket vase shelf desk jar pot street road field meadow room kitchen "
    "garden park beach sky counter pond aquarium cage branch lawn courtyard bathroom bedroom "
    "windowsill flower jungle forest desert hill cliff pizza cake"
)
"""Things that are with what lies on them or in them: a plate with an apple."""

VESSELS: Final = _words("cup glass bottle mug bowl jar can pot bucket barrel box bag basket carton")
"""A wine glass is not full of wine."""

SITES: Final = _words(
    "park kitchen cafe restaurant city street beach garden garage market village farm forest "
    "desert office school library museum church station harbor stadium bedroom bathroom desk "
    "table wall ceiling floor mountain country town theater barn field"
)
"""Where a thing named by them is: a park bench, a table lamp, a wall clock."""

SETTINGS: Final = _words(
    "night day dawn dusk sunset sunrise noon midnight morning evening afternoon twilight winter "
    "summer spring autumn fall storm rain snow fog sunlight moonlight park kitchen street beach "
    "garden market village farm forest desert office library museum station harbor stadium "
    "bedroom field meadow jungle city town mountain river lake sea ocean sky space countryside "
    "restaurant cafe classroom country valley"
)
"""When or where all of a picture is: who in it is said to be there makes no difference."""

PLACES_AT: Final = _words(
    "park beach kitchen restaurant cafe market station museum library school party concert zoo "
    "farm garden office airport hotel bar club bakery festival stadium gym night dawn dusk sunset "
    "sunrise noon midnight home party classroom"
)
"""Where "at" and "in" are one."""

EITHER_SIDE: Final = _words(
    "grass street road beach lawn farm field meadow sand snow shore couch sofa armchair chair "
    "stage sky lap arm island bed driveway boat ship bus train plane airplane"
)
"""Things that one is "on" or "in" without being elsewhere."""

MISLEADING: Final = _words(
    "turtle john hood rex fencing pupil arena pedestal trend rock do wing wave dot space name "
    "mobile"
)
"""Words whose first meaning in the lexicon is not that of prompts: they have no synonyms."""

ALIKE_VERBS: Final = _groups(
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
    shout="shout scream yell",
    laugh="laugh giggle chuckle",
    smile="smile grin beam",
    fly="fly soar glide hover",
    sit="sit perch",
    cycle="cycle bike",
)
"""Verbs that name one picture where the lexicon has them apart. Words of two rows name two, though
the lexicon may have them together: to cry is not to shout. So in the next two lists."""

ALIKE_ADJECTIVES: Final = _groups(
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
)

ALIKE_NOUNS: Final = _groups(
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
    forest="forest woodland woods",
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
    phone="phone telephone cellphone smartphone",
    flower="flower blossom bloom",
    meadow="meadow field pasture",
    doctor="doctor physician",
    policeman="policeman cop",
    sofa="sofa couch settee",
    ring="ring",
    hoop="hoop",
)

FLAT_SHAPES: Final = _groups(
    circle="circle disc disk",
    square="square box",
    triangle="triangle pyramid",
    cross="cross plus",
    ring="ring hoop",
)
"""The shapes of flat drawings, the bundled model's own captions. A box is a square there only: see
`readings`."""

CONVERSE: Final = {
    "right_of": "left_of",
    "below": "above",
    "behind": "in_front_of",
}
"""Relations that say the same from the other side; the left name is rewritten to the right one."""
