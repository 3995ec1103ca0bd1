#!/usr/bin/env python3
"""Write labelled recipe ingredient phrases, made up from a small grammar.

Each output line holds a token, its shape and its label, separated by tabs;
a blank line ends each phrase.  The labels are IOB2 over four kinds of span:

    QTY      how much            1 1/2, 2 to 3, a
    UNIT     of what measure     cups, (a) can, cloves (of garlic)
    NAME     of which product    ground beef, garlic, cream of tartar
    COMMENT  in what state       finely chopped, to taste, (14 ounce)

Punctuation and joining words ("of", "or", "plus") between spans are O.  What
has to be bought is the name ("ground beef"), what is done with it is comment
("freshly ground"), so that many words take their label from their context.

The same seed always gives the same output.  Each seed knows only a part of
the rare words, so the phrases of another seed contain words that are new.
"""

import argparse
import random
import sys

# Every seed knows the common words, which open each list, and some rare ones.
COMMON_SHARE = 0.25
KNOWN_RARE_SHARE = 0.4

FIRST_CAPITAL_RATE = 0.12
ALL_CAPITALS_RATE = 0.03
TYPO_RATE = 0.04
SHORTEST_TYPO = 5

# Open word lists, the entries separated by commas, the common ones first.
VOCABULARY = {
    "dry": """
        flour, whole wheat flour, sugar, brown sugar, cornstarch, cocoa powder,
        rolled oats, bread crumbs, shredded coconut, chocolate chips, raisins,
        ground almonds, frozen peas, bread flour, rice flour, chickpea flour,
        powdered sugar, palm sugar, oat bran, cornmeal, semolina, couscous,
        quinoa, bulgur, wild rice, basmati rice, arborio rice, pearl barley,
        red lentils, split peas, milk powder, wheat germ, butterscotch drops,
        dried cranberries, dried cherries, sunflower seeds, pumpkin seeds,
        poppy seeds, graham cracker crumbs, puffed rice, frozen corn,
        popping corn, tapioca""",
    "seasoning": """
        salt, baking soda, baking powder, cream of tartar, dry yeast, sea salt,
        dry mustard, kosher salt, celery salt, garlic powder, onion powder,
        curry powder, cayenne pepper, white pepper, chili flakes,
        smoked paprika, sweet paprika, vanilla sugar, gelatin, sumac""",
    "liquid": """
        milk, whole milk, water, heavy cream, sour cream, half-and-half,
        olive oil, dry white wine, red wine vinegar, soy sauce, hot sauce,
        lemon juice, orange juice, chicken stock, honey, vanilla extract,
        buttermilk, sesame oil, peanut oil, walnut oil, dry sherry,
        cider vinegar, rice vinegar, fish sauce, oyster sauce, tomato sauce,
        maple syrup, molasses, lime juice, apple cider, beef stock, fish stock,
        vegetable broth, clam juice, coconut milk, oat milk, almond extract,
        rose water, rum, brandy, peanut butter, plain yogurt, tahini,
        apricot jam""",
    "spice": """
        cumin, coriander, cinnamon, nutmeg, ginger, allspice, turmeric,
        cardamom, mace, fennel, anise, fenugreek, caraway, mustard, sage""",
    "herb": """
        parsley, basil, cilantro, mint, dill, thyme, rosemary, oregano, sage,
        tarragon, chervil, marjoram, lemon balm, lovage, savory, sorrel""",
    "vegetable": """
        onion, green onion, carrot, potato, sweet potato, tomato, cup mushroom,
        zucchini, cucumber, green pepper, wood ear mushroom, red onion,
        baking potato, plum tomato, eggplant, red bell pepper, hot pepper,
        leek, shallot, turnip, parsnip, beet, radish, jalapeno,
        butternut squash, artichoke, rutabaga, kohlrabi, bottle gourd,
        tomatillo, button mushroom, portobello mushroom""",
    "fruit": """
        apple, pear, lemon, lime, orange, peach, mango, banana, nectarine,
        avocado, quince, papaya, plum, apricot, grapefruit, persimmon, kiwi,
        baking apple, blood orange, fig, pomegranate, tangerine""",
    "berry": """
        strawberry, raspberry, blueberry, blackberry, cherry, cranberry,
        gooseberry, red currant, grape, sour cherry, elderberry, mulberry""",
    "meat": "beef, pork, lamb, turkey, chicken, veal, venison, bison, goat",
    "cut": """
        chicken breast, chicken thigh, chicken wing, pork chop, pork shoulder,
        lamb shank, beef brisket, short rib, rib roast, spare rib, flank steak,
        rib eye steak, turkey leg, veal cutlet, pork tenderloin, ham hock,
        duck leg""",
    "joint": """
        leg of lamb, rack of lamb, saddle of venison, loin of pork,
        head of veal, shoulder of goat, side of salmon""",
    "fish": """
        salmon, cod, halibut, trout, tuna, haddock, sea bass, mackerel, sole,
        red snapper, monkfish, pike, turbot, arctic char""",
    "cheese": """
        cheddar, Parmesan, Gruyere, feta, goat cheese, blue cheese, mozzarella,
        ricotta, cream cheese, cottage cheese, provolone, head cheese,
        Emmental, Manchego, string cheese, pecorino""",
    "nut": """
        walnut, pecan, almond, hazelnut, cashew, pistachio, peanut, pine nut,
        chestnut, Brazil nut, macadamia nut""",
    "fat": """
        butter, salted butter, margarine, lard, ghee, bacon fat, duck fat,
        vegetable shortening""",
    "oil": """
        olive oil, margarine, canola oil, coconut oil, sunflower oil, corn oil,
        walnut oil""",
    "canned": """
        diced tomatoes, crushed tomatoes, tomato paste, chickpeas, black beans,
        tuna, cream of mushroom soup, coconut milk, sliced peaches,
        whole chestnuts, stewed tomatoes, kidney beans, white beans,
        refried beans, cream of celery soup, crushed pineapple,
        sweetened condensed milk, sardines, sliced olives, creamed corn,
        chopped clams, smoked oysters, hearts of palm, bamboo shoots, pumpkin,
        diced green chilies, ginger ale, beer""",
    "packed": """
        spaghetti, egg noodles, puff pastry, chopped spinach, frozen peas,
        bread sticks, tea bags, lasagna sheets, pie crust mix,
        frozen raspberries, tortilla chips, instant pudding, lady fingers,
        cream cheese, silken tofu, soba noodles, fish sticks, wonton wrappers,
        onion soup mix, chocolate drops, peanut butter cups, rice sticks""",
    "leafy": """
        romaine lettuce, butter lettuce, kale, spinach, Swiss chard, arugula,
        bok choy, watercress, green cabbage, endive, collard greens""",
    # Whole things whose names contain words that are units elsewhere.
    "deceptive": """
        cinnamon stick, celery stick, bay leaf, curry leaf, fish head, tea bag,
        pound cake, peanut butter cup, chocolate bar, apple slice, bread stick,
        fish stick, lime leaf, salmon head, garlic head, granola bar,
        lemon slice, fennel bulb, cup cake, pecan half, melon ball, rice ball,
        sugar cube, bouillon cube, pig ear, cod fillet, ice cream bar,
        pastry square, corn ear, celery rib""",
    "cooked": """
        rice, brown rice, pasta, chicken, ham, quinoa, black beans, lentils,
        shrimp, bacon, barley, noodles, crab meat, lobster""",
    "sliceable": """
        bacon, white bread, rye bread, ham, pound cake, Swiss cheese,
        smoked salmon, roast beef, salami, rib roast""",
    "chocolate": """
        dark chocolate, milk chocolate, white chocolate, baking chocolate""",
    "cut_how": """
        chopped, diced, minced, sliced, grated, shredded, crushed, cubed,
        julienned, quartered, shaved, slivered, mashed, torn""",
    "peeled": """
        peeled, seeded, cored, pitted, trimmed, halved, rinsed, husked,
        scrubbed, blanched, zested, quartered, scored, stemmed""",
    "waste": """
        stems, seeds, ribs, heads, leaves, stalks, skins, cores, tails, bones,
        gills, rinds, pits, tops""",
    "purpose": """
        dusting, frying, garnish, serving, greasing, sprinkling, the pan,
        the dough, brushing, rolling, the top, baking, drizzling, the sauce,
        the glaze, decoration""",
    "brine": """
        water, olive oil, oil, brine, syrup, tomato sauce, vinegar, juice""",
}

# A rule is a name followed by indented alternatives: a weight, then what to
# write.  "@name" expands a rule or takes an entry of a word list, "@name+" its
# plural, and "[KIND ...]" labels a span.
GRAMMAR = """
phrase
    16  @volume @of @packed_how [NAME @dry] @pantry_remark
    6   @spoon @of [NAME @seasoning] @pantry_remark
    16  @volume @of @warmth [NAME @liquid] @pantry_remark
    3   @volume @plus @spoon @of [NAME @dry] @pantry_remark
    2   @volume @plus @spoon @of [NAME @liquid] @pantry_remark
    6   @spoon @of [NAME ground @spice] @pantry_remark
    3   @spoon @of [NAME ground cloves] @pantry_remark
    4   @spoon @of [COMMENT freshly ground] [NAME @pepper] @pantry_remark
    2   @spoon @of [NAME @pepper] , [COMMENT freshly ground]
    2   @spoon @of [COMMENT freshly grated] [NAME @spice]
    4   [QTY @count] [COMMENT whole] [NAME @seed] @pantry_remark
    3   @spoon @of [NAME dried @herb] @pantry_remark
    5   @spoon @of @fresh [COMMENT @cutting] [NAME @herb] @pantry_remark
    5   @sprigs @of @fresh [NAME @herb] @produce_remark
    8   [QTY @one] @size [NAME @vegetable] @produce_remark
    10  [QTY @count] @size [NAME @vegetable+] @produce_remark
    8   @cups_of @of [COMMENT @cutting] [NAME @vegetable+] @produce_remark
    3   @cups_of @of [NAME @vegetable+] @produce_remark
    3   @cups_of @of [NAME mushrooms] @produce_remark
    2   @cups_of @of [COMMENT @cutting] [NAME mushrooms]
    3   @cups_of @of [COMMENT @cutting] [NAME tomatoes]
    3   @weight @of @size [NAME @vegetable+] @produce_remark
    4   [QTY @one] @size [NAME @fruit] @produce_remark
    5   [QTY @count] @size [NAME @fruit+] @produce_remark
    3   [COMMENT @yield of] [QTY @one] [NAME @fruit]
    3   @spoon @of [COMMENT @cutting] [NAME @fruit zest]
    5   @cups_of @of @fresh [NAME @berry+] @produce_remark
    6   @weight @of [NAME ground @meat] @meat_remark
    3   @weight @of [NAME minced @meat] @meat_remark
    5   @weight @of @bone [NAME @cut+] @meat_remark
    5   [QTY @count] @size @bone [NAME @cut+] @meat_remark
    3   [QTY @one] @bone [NAME @joint] @meat_remark
    3   [QTY @count] @sized [NAME @fish fillets] @meat_remark
    4   [QTY @count] @size [UNIT fillets] @of @fresh [NAME @fish] @meat_remark
    4   @weight @of @fresh [NAME @fish] @meat_remark
    3   [QTY @count] [NAME @fish heads] @meat_remark
    5   [QTY @count] @sized [NAME shrimp] @meat_remark
    6   @cups_of @of [COMMENT @cutting] [NAME @cheese] @dairy_remark
    4   @weight @of [NAME @cheese] @dairy_remark
    5   @cups_of @of @roasted [NAME @nut+] @pantry_remark
    3   @cups_of @of [NAME @nut halves] @pantry_remark
    4   @volume @of [NAME @fat] @dairy_remark
    4   @volume @of @soft [NAME @fat] @plain_remark
    6   @volume @of [NAME @fat] or [NAME @oil] @dairy_remark
    3   @sticks @of [NAME @fat] @dairy_remark
    3   @sticks @of @soft [NAME @fat] @plain_remark
    3   @sticks ( [COMMENT @in_cups] ) [NAME @fat] @dairy_remark
    3   @cups_of ( [COMMENT @in_sticks] ) @soft [NAME @fat] @plain_remark
    14  @cans @of [NAME @canned] @can_remark
    8   @packages @of [NAME @packed] @pantry_remark
    3   @heads @of [NAME garlic] @produce_remark
    14  @cloves @of [NAME garlic] @produce_remark
    2   [QTY @one] @size [NAME garlic clove] @produce_remark
    4   [QTY @count] @size [NAME garlic cloves] @produce_remark
    6   @heads @of [NAME @leafy] @produce_remark
    3   @cups_of @of [COMMENT @cutting] [NAME @leafy] @produce_remark
    4   @ribs @of [NAME celery] @produce_remark
    3   @ears @of @fresh [NAME corn] @produce_remark
    3   @leaves @of @fresh [NAME @herb] @produce_remark
    4   @slices @of [NAME @sliceable] @meat_remark
    3   @bulbs @of [NAME fennel] @produce_remark
    3   @drops @of [NAME @liquid]
    2   @balls @of @fresh [NAME mozzarella] @dairy_remark
    3   @bars @of [NAME @chocolate] @dairy_remark
    2   @sticks @of [NAME cinnamon]
    8   [QTY @one] @size [NAME @deceptive] @plain_remark
    10  [QTY @count] @size [NAME @deceptive+] @plain_remark
    4   @cups_of @of [COMMENT @cooked_how] [NAME @cooked] @can_remark
    6   [QTY @count] @size [NAME eggs] @egg_remark
    3   [QTY @count] [NAME egg @egg_part] @egg_remark
    14  @unmeasured

# No quantity at all
unmeasured
    3   [NAME @seasoning] [COMMENT @taste]
    3   [NAME salt] and [NAME pepper] [COMMENT @taste]
    2   [NAME salt] and [COMMENT freshly ground] [NAME pepper] [COMMENT @taste]
    2   [COMMENT freshly ground] [NAME @pepper] [COMMENT @taste]
    3   [NAME @liquid] , [COMMENT @taste]
    3   [NAME @fat] [COMMENT for @purpose]
    2   [NAME @fat] or [NAME @oil] [COMMENT for @purpose]
    3   [NAME @herb @herb_part] , [COMMENT for @purpose]
    2   [NAME @fruit slices] [COMMENT for @purpose]
    2   [COMMENT @cutting] [NAME @herb] [COMMENT for @purpose]
    2   [UNIT dash] of [NAME @liquid]
    2   [UNIT pinch] of [NAME ground @spice]

of
    5
    1   of
plus
    3   plus
    1   and

# Quantities
one
    10  1
    2   one
    2   a
    1   half a
part
    6   @fraction
    4   1
    1   a
    1   half a
count
    10  @number
    3   @range
    2   @number_word
    1   a few
    1   about @number
amount
    6   @number
    3   @number @fraction
    2   1 @fraction
    2   @range
    1   about @number
number
    4   2
    3   3
    4   4
    1   5
    2   6
    2   8
    1   10
    2   12
number_word
    2   two
    2   three
    1   four
    1   six
    1   a dozen
fraction
    4   1/2
    3   1/4
    2   3/4
    2   1/3
    1   2/3
    1   1/8
range
    3   2 @through 3
    2   3 @through 4
    2   4 @through 6
    1   8 @through 10
through
    3   to
    2   or
    2   -
metric
    2   100
    3   200
    3   250
    2   500
ounces
    2   4
    3   8
    2   10
    2   12
    2   14
    2   16

# Measures of volume
volume
    3   @cups_of
    1   @spoon
cups_of
    6   [QTY @part] [UNIT @cup]
    5   [QTY @amount] [UNIT @cups]
    1   [QTY @metric] [UNIT @millilitre]
cup
    8   cup
    2   c
    1   c.
    1   pint
    1   quart
cups
    9   cups
    1   cup
    2   c
    1   pints
    1   quarts
millilitre
    3   ml
    1   millilitres
spoon
    4   [QTY @part] [UNIT @filled @spoon_name]
    4   [QTY @amount] [UNIT @filled @spoon_names]
    1   [QTY a] [UNIT @tiny]
filled
    12
    1   heaping
    1   level
spoon_name
    4   tsp
    2   tsp.
    3   teaspoon
    4   tbsp
    2   tbsp.
    3   tablespoon
spoon_names
    4   tsp
    3   teaspoons
    4   tbsp
    1   Tbsp.
    3   tablespoons
tiny
    2   pinch
    1   dash

# Measures of weight
weight
    4   [QTY @part] [UNIT @pound]
    3   [QTY @amount] [UNIT @pounds]
    6   [QTY @ounces] [UNIT @ounce]
    3   [QTY @metric] [UNIT @gram]
pound
    3   lb
    1   lb.
    3   pound
    1   kg
pounds
    3   lbs
    1   lb
    3   pounds
    1   kg
ounce
    3   oz
    1   oz.
    3   ounces
gram
    4   g
    2   grams

# Natural pieces.  Most of these words are also part of names or comments.
sprigs
    2   [QTY @one] [UNIT @bundle]
    2   [QTY @count] [UNIT @bundles]
bundle
    2   sprig
    2   bunch
    1   handful
bundles
    3   sprigs
    2   bunches
    1   stalks
cloves
    1   [QTY @one] @size [UNIT clove]
    3   [QTY @count] @size [UNIT cloves]
heads
    3   [QTY @one] @size [UNIT head]
    2   [QTY @count] @size [UNIT heads]
ribs
    1   [QTY @one] @size [UNIT rib]
    2   [QTY @count] @size [UNIT ribs]
    1   [QTY @one] @size [UNIT stalk]
    2   [QTY @count] @size [UNIT stalks]
ears
    1   [QTY @one] @size [UNIT ear]
    2   [QTY @count] @size [UNIT ears]
leaves
    1   [QTY @one] @size [UNIT leaf]
    3   [QTY @count] @size [UNIT leaves]
slices
    1   [QTY @one] @thick [UNIT slice]
    3   [QTY @count] @thick [UNIT slices]
bulbs
    2   [QTY @one] @size [UNIT bulb]
    1   [QTY @count] @size [UNIT bulbs]
drops
    3   [QTY @count] [UNIT drops]
balls
    2   [QTY @one] @size [UNIT ball]
    1   [QTY @count] @size [UNIT balls]
bars
    2   [QTY @one] @size [UNIT bar]
    1   [QTY @count] @size [UNIT bars]
    2   [QTY @count] [UNIT squares]
sticks
    3   [QTY @one] [UNIT stick]
    2   [QTY @amount] [UNIT sticks]

# Packages.  Their size is comment, though it reads like quantity and unit.
cans
    4   [QTY @one] @size [UNIT @can]
    3   [QTY @count] @size [UNIT @can+]
    4   [QTY 1] ( [COMMENT @package_size] ) [UNIT @can]
    3   [QTY @count] ( [COMMENT @package_size] ) [UNIT @can+]
    2   [QTY @number] [COMMENT @package_size] [UNIT @can+]
    2   [QTY 1] [COMMENT @dashed_size] [UNIT @can]
    2   [QTY 1] [UNIT @can] ( [COMMENT @package_size] )
packages
    4   [QTY @one] @size [UNIT @package]
    3   [QTY @count] @size [UNIT @package+]
    3   [QTY 1] ( [COMMENT @package_size] ) [UNIT @package]
    2   [QTY 1] [COMMENT @dashed_size] [UNIT @package]
    2   [QTY 1] [UNIT @package] ( [COMMENT @package_size] )
can
    6   can
    2   jar
    1   bottle
    1   tin
package
    3   package
    3   bag
    1   box
    1   packet
package_size
    3   @ounces ounce
    3   @ounces oz
    1   @ounces oz.
    1   @metric g
dashed_size
    2   14-ounce
    1   8-ounce
    1   15-oz
    1   28-ounce
in_cups
    2   @fraction cup
    1   about @number tablespoons
    1   @metric g
in_sticks
    2   @number sticks
    2   1 stick
    1   @metric g

# Names
pepper
    4   pepper
    4   black pepper
    2   white pepper
    1   peppercorns
seed
    4   cloves
    1   allspice berries
    2   cardamom pods
    1   star anise
    1   nutmegs
egg_part
    2   whites
    3   yolks
herb_part
    3
    2   leaves
    1   stalks

# Comments before the name
packed_how
    12
    1   [COMMENT sifted]
    1   [COMMENT packed]
    1   [COMMENT lightly packed]
    1   [COMMENT good quality]
warmth
    10
    1   [COMMENT warm]
    1   [COMMENT cold]
    1   [COMMENT hot]
    1   [COMMENT boiling]
fresh
    2
    2   [COMMENT fresh]
    1   [COMMENT fresh or frozen]
size
    2
    1   @sized
sized
    3   [COMMENT small]
    3   [COMMENT medium]
    4   [COMMENT large]
    1   [COMMENT whole]
    1   [COMMENT small to medium]
    1   [COMMENT good quality]
bone
    4
    1   [COMMENT boneless]
    1   [COMMENT skinless , boneless]
    1   [COMMENT bone-in]
    1   [COMMENT lean]
soft
    1   [COMMENT softened]
    1   [COMMENT melted]
    1   [COMMENT cold]
    1   [COMMENT soft]
roasted
    3
    2   [COMMENT toasted]
    1   [COMMENT roasted]
    3   [COMMENT @cutting]
thick
    4
    1   [COMMENT thick]
    1   [COMMENT thin]
cooked_how
    3   cooked
    1   leftover
    1   cooked and @cut_how
cutting
    5   @cut_how
    4   @adverb @cut_how
adverb
    4   finely
    3   coarsely
    2   thinly
    2   freshly
    1   roughly
yield
    2   juice
    1   grated zest
    1   grated rind

# Comments after the name, mostly but not always behind a comma
pantry_remark
    7
    3   , [COMMENT @pantry]
    2   [COMMENT @pantry]
    1   ( [COMMENT @pantry] )
can_remark
    3
    3   , [COMMENT @drained]
    2   [COMMENT @drained]
    1   ( [COMMENT @drained] )
produce_remark
    4
    5   , [COMMENT @prepared]
    2   [COMMENT @prepared]
    1   ( [COMMENT @prepared] )
    1   , [COMMENT @prepared] ( [COMMENT @aside] )
meat_remark
    4
    3   , [COMMENT @butchered]
    2   [COMMENT @butchered]
    1   ( [COMMENT @butchered] )
dairy_remark
    4
    3   , [COMMENT @dairy]
    2   [COMMENT @dairy]
    1   ( [COMMENT @dairy] )
egg_remark
    3
    2   , [COMMENT @egg]
    1   [COMMENT @egg]
plain_remark
    5
    1   , [COMMENT @aside]
    1   ( [COMMENT @aside] )
aside
    2   optional
    2   for @purpose
    1   the best you can find
    1   about @number @cups
    1   @ounces ounces each
taste
    5   to taste
    1   as needed
    1   or more to taste
pantry
    3   for @purpose
    3   plus more for @purpose
    2   plus @number tablespoons for @purpose
    2   @sifted
    2   to taste
    1   or more to taste
    2   at room temperature
    1   the best you can find
    1   optional
drained
    3   drained
    2   drained and rinsed
    2   packed in @brine
    1   in @brine
    1   from a can or jar
    1   with the juice
    1   liquid reserved
    1   can reserved
    2   @aside
prepared
    6   @cutting
    4   @peeled
    5   @peeled and @cutting
    2   @peeled , @peeled and @cutting
    2   @waste removed
    1   @waste and @waste removed
    1   @waste only
    3   cut into @bits
    2   cut in half
    1   cut in two
    1   as ripe as you can get
    1   thawed if frozen
    1   white and green parts only
    1   @cut_how or whole
    1   plus more for @purpose
butchered
    2   trimmed
    3   cut into @bits
    1   cut in two
    1   @cut_how
    1   patted dry
    1   pounded thin
    2   @waste removed
    1   heads and tails removed
    1   heads on
    1   thawed if frozen
    1   about @number pounds
    2   @aside
dairy
    2   softened
    2   melted
    1   melted and cooled
    1   cut into @bits
    2   @cutting
    2   divided
    2   at room temperature
    1   plus more for @purpose
    1   not too dry
    1   @aside
egg
    3   lightly beaten
    1   beaten
    1   separated
    1   at room temperature
    1   hard boiled and @cut_how
sifted
    2   sifted
    1   divided
    1   toasted
    1   warmed
    1   lightly packed
bits
    3   @fraction inch slices
    2   @number pieces
    2   bite-size pieces
    2   sticks
    2   squares
    1   wedges
    1   small cubes
    1   thin slices
    1   @fraction inch cubes
"""


def parse_grammar(text):
    """Return {rule: (weights, expansions)}."""
    rules = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            weights, expansions = rules[line.strip()] = ([], [])
            continue
        weight, _, expansion = line.strip().partition(" ")
        weights.append(int(weight))
        expansions.append(expansion.replace("]", " ] ").split())
    return rules


def last_in_plural(words):
    *first, (last, kind) = words
    return [*first, (plural(last), kind)]


def plural(word):
    if word.endswith(("half", "leaf")):
        return word[:-1] + "ves"
    if word.endswith("rry"):
        return word[:-1] + "ies"
    if word.endswith(("tomato", "potato", "sh", "ch", "box")):
        return word + "es"
    return word + "s"


class Speaker:
    """Makes phrases up from the grammar and its own part of the vocabulary."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rules = parse_grammar(GRAMMAR)
        self.words = {name: self.known_part(entries)
                      for name, entries in VOCABULARY.items()}

    def known_part(self, entries):
        entries = [" ".join(entry.split()) for entry in entries.split(",")]
        first_rare = round(COMMON_SHARE * len(entries))
        common, rare = entries[:first_rare], entries[first_rare:]
        return common + self.random.sample(
            rare, round(KNOWN_RARE_SHARE * len(rare)))

    def phrase(self):
        """Return one phrase as a list of (token, label)."""
        spans = list(self.expand("phrase", None))
        words = self.vary_capitals([self.misspell(word) for word, _ in spans])
        return list(zip(words, iob2([kind for _, kind in spans])))

    def expand(self, name, kind):
        """Yield (word, kind) for a rule or for an entry of a word list."""
        if name.endswith("+"):
            yield from last_in_plural(self.expand(name[:-1], kind))
        elif name in self.words:
            for word in self.random.choice(self.words[name]).split():
                yield word, kind
        else:
            yield from self.expand_rule(name, kind)

    def expand_rule(self, name, kind):
        weights, expansions = self.rules[name]
        for item in self.random.choices(expansions, weights)[0]:
            if item.startswith("["):
                kind = item[1:]
            elif item == "]":
                kind = None
            elif item.startswith("@"):
                yield from self.expand(item[1:], kind)
            else:
                yield item, kind

    def misspell(self, word):
        """Now and then drop, double or swap letters inside a longer word."""
        if len(word) < SHORTEST_TYPO or not word.isalpha():
            return word
        if self.random.random() >= TYPO_RATE:
            return word
        at = self.random.randrange(1, len(word) - 1)
        here, following = word[at], word[at + 1]
        slip = self.random.choice(
            [following, here + here + following, following + here])
        return word[:at] + slip + word[at + 2:]

    def vary_capitals(self, words):
        dice = self.random.random()
        if dice < ALL_CAPITALS_RATE:
            return [word.upper() for word in words]
        if dice < ALL_CAPITALS_RATE + FIRST_CAPITAL_RATE:
            return [word.capitalize() for word in words[:1]] + words[1:]
        return words


def iob2(kinds):
    """Turn the kind of each token into its label; equal neighbours join."""
    labels = []
    for previous, kind in zip([None] + kinds, kinds):
        if kind is None:
            labels.append("O")
        else:
            labels.append(("I-" if kind == previous else "B-") + kind)
    return labels


def shape(token):
    """Describe a token's spelling: "Cup" is Xx, "1/2" is d/d, "," is ","."""
    classes = []
    for character in token:
        mark = character_class(character)
        if classes[-1:] != [mark]:
            classes.append(mark)
    return "".join(classes)


def character_class(character):
    if character.isdigit():
        return "d"
    if character.isupper():
        return "X"
    if character.isalpha():
        return "x"
    return character


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Write labelled recipe ingredient phrases.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phrases", type=int, default=2000, metavar="N")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    speaker = Speaker(arguments.seed)
    for _ in range(arguments.phrases):
        for token, label in speaker.phrase():
            sys.stdout.write(f"{token}\t{shape(token)}\t{label}\n")
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
