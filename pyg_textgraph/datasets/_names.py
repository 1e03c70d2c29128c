"""Names for generated people, projects and things; no two lists share a word."""

WOMEN = """Ada Agnes Alice Amelia Anna Astrid Beatrice Bella Bridget Camille Carla Celia Chloe Clara Daphne Diana Dora
Edith Eleanor Elisa Emma Erica Esther Eva Fiona Freya Gemma Gloria Greta Hannah Helen Ida Ingrid Irene Iris Isabel Jane
Joan Julia Karen Katja Laura Lena Lucy Lydia Mabel Maria Martha Maya Mira Nadia Nina Nora Paula Petra Ruth Sarah Selma
Sofia Tessa Thea Ursula Vera Wanda Yvonne Zoe""".split()
MEN = """Aaron Adam Albert Alex Anton Arthur Benjamin Bernard Boris Bruno Carl Cecil Colin Conrad Daniel David Dennis
Edgar Edward Emil Eric Ernest Felix Frank Fred Gavin George Gilbert Gustav Hans Harold Henry Hugo Ian Igor Isaac Ivan
Jack Jacob James Jonas Karl Kevin Lars Leo Liam Louis Lucas Martin Max Miles Nathan Neil Oscar Otto Patrick Paul Peter
Ralph Robert Samuel Simon Stefan Thomas Victor Walter""".split()
COLOURS = "red blue green yellow orange purple black white brown grey pink turquoise".split()
FOODS = "pizza sushi curry pasta soup salad risotto tacos pancakes ramen cheese dumplings".split()
CITIES = "Berlin Tokyo Rome Cairo Lima Oslo Madrid Nairobi Toronto Dublin Vienna Seoul".split()
PROJECTS = """Falcon Atlas Comet Delta Ember Granite Harbor Juniper Lantern Meteor Nimbus Orchard Pioneer Quartz Raven
Summit Tundra Voyager Willow Zephyr Beacon Cascade Drift Horizon Ivory Jade Kestrel Mosaic Nova Onyx""".split()
RESOURCES = """database archive cluster printer ledger warehouse server laboratory scanner calendar library router
telescope vault microscope satellite dashboard compiler notebook camera greenhouse workshop simulator mailbox sensor
repository terminal furnace microphone projector""".split()
