//! Laptops.

use super::{Family, Icon, Kind, PROMISES, Spec, any, family, line, paired, rising};

/// Ноутбуки.
pub(super) const LAPTOP: Kind = Kind {
    weight: 18,
    icon: Icon::Laptop,
    title: "Ноутбук $B $M $C, $0, $1, $2/$3, $6",
    maker: "Бренд",
    families: LAPTOP_FAMILIES,
    specs: &[
        any("Диагональ", &["14″", "14″", "15,6″", "15,6″", "15,6″", "16″", "16″"]),
        rising(
            "Процессор",
            &[
                "Intel N100",
                "Intel Core i3-1215U",
                "AMD Ryzen 5 7520U",
                "Intel Core i5-12450H",
                "AMD Ryzen 5 7535HS",
                "Intel Core i5-13420H",
                "AMD Ryzen 7 7735HS",
                "Intel Core Ultra 5 125H",
                "Intel Core i7-13700H",
                "Intel Core Ultra 7 155H",
                "AMD Ryzen 9 8945HS",
                "Intel Core i9-14900HX",
            ],
        ),
        rising(
            "Оперативная память",
            &["8 ГБ", "8 ГБ", "16 ГБ", "16 ГБ", "16 ГБ", "32 ГБ", "64 ГБ"],
        ),
        rising("Объём SSD", &["256 ГБ", "512 ГБ", "512 ГБ", "512 ГБ", "1 ТБ", "1 ТБ", "2 ТБ"]),
        any("Видеокарта", &["встроенная"]),
        any("Операционная система", &["Windows 11 Home", "Windows 11 Pro", "без ОС", "без ОС"]),
        any("Цвет", &["серый", "серый", "серебристый", "чёрный", "синий"]),
        paired("Вес", 0, &["1,3 кг", "1,5 кг", "1,6 кг", "1,7 кг", "1,8 кг", "1,8 кг", "1,9 кг"]),
    ],
    words: &[],
    prices: [19_990, 42_990, 69_990, 119_990, 329_990],
    about: [
        &[
            "Ноутбук $M с экраном $0 и процессором $1 для работы, учёбы и развлечений.",
            "Ноутбук $B с экраном $0 весит $7 и помещается в обычный рюкзак.",
            "Универсальный ноутбук: процессор $1, оперативная память $2, накопитель $3.",
        ],
        &[
            "Твердотельный накопитель $3 загружает систему за считаные секунды.",
            "Матовое покрытие экрана не бликует, а клавиатура с подсветкой удобна и вечером.",
            "Порты USB-C, HDMI и быстрый Wi-Fi 6 позволят подключить всё необходимое.",
        ],
        PROMISES,
    ],
};

const LAPTOP_FAMILIES: &[Family] = &[
    family(
        "Lenovo",
        "8[23]@@00##RK",
        &[
            line("IdeaPad 1", 60, 260),
            line("IdeaPad Slim [35]", 220, 520),
            line("ThinkBook &0 G[678]", 430, 640),
            line("ThinkPad E&0 Gen [56]", 520, 720),
            line("Yoga Pro [79]", 680, 840),
        ],
        &[],
    ),
    family(
        "Lenovo",
        "8[23]@@00##RK",
        &[line("Legion 5", 640, 800), line("Legion Pro 7", 850, 1000), line("LOQ", 520, 680)],
        GAMING,
    ),
    family(
        "ASUS",
        "90NB1###-M0@##0",
        &[
            line("VivoBook Go &0 E1&004", 120, 330),
            line("VivoBook &0 X1&00[45]", 260, 520),
            line("Zenbook &0 OLED UX34#5", 600, 790),
            line("ExpertBook B[135]", 430, 660),
        ],
        &[],
    ),
    family(
        "ASUS",
        "90NR0@@%-M00###",
        &[line("TUF Gaming A&0", 560, 760), line("ROG Strix G&0", 760, 1000)],
        GAMING,
    ),
    family(
        "Acer",
        "NX.K@@CD.0#%",
        &[
            line("Aspire 3 A3&0-%%P", 150, 380),
            line("Aspire 5 A5&0-%%M", 330, 560),
            line("Swift Go &0 SFG&0-[67]#", 520, 720),
            line("Extensa &0 EX2&0-%%", 120, 360),
        ],
        &[],
    ),
    family("Acer", "NH.Q@@ER.0#%", &[line("Nitro V &0 ANV&0-%%", 540, 720)], GAMING),
    family(
        "HP",
        "%@###EA",
        &[
            line("&0s-fq5###", 160, 400),
            line("25[05] G[89]", 180, 400),
            line("Pavilion &0-dv2###", 400, 600),
            line("ProBook 4[45]0 G1[01]", 480, 700),
            line("EliteBook 8[46]0 G1[01]", 680, 860),
        ],
        &[],
    ),
    family("HP", "%@###EA", &[line("Victus &0-s1###", 560, 720)], GAMING),
    family(
        "MSI",
        "9S7-1[57]####-##%",
        &[line("Katana &0 B1[34]V", 600, 780), line("Cyborg &0 A1[23]V", 540, 700)],
        GAMING,
    ),
    family(
        "HUAWEI",
        "530####@",
        &[line("MateBook D &0", 330, 540), line("MateBook X Pro", 760, 900)],
        &[],
    ),
    family("HONOR", "5301A@@@%", &[line("MagicBook X&0 Pro", 340, 560)], &[]),
    family(
        "Tecno",
        "T1[56]@@##",
        &[line("Megabook T1", 240, 460), line("Megabook K&0S", 200, 420)],
        &[],
    ),
    family(
        "DIGMA",
        "DN1[456]P%-###@",
        &[line("EVE C5###", 0, 150), line("Pro Fortis M", 180, 380)],
        &[],
    ),
    family(
        "Apple",
        "M@@%3@@/A",
        &[line("MacBook Air", 620, 760)],
        &[
            any("Диагональ", &["13,6″", "15,3″"]),
            any("Процессор", &["Apple M2", "Apple M3", "Apple M4"]),
            any("Оперативная память", &["8 ГБ", "16 ГБ", "16 ГБ", "24 ГБ"]),
            any("Объём SSD", &["256 ГБ", "512 ГБ"]),
            any("Операционная система", &["macOS"]),
            any("Цвет", &["серебристый", "серый", "синий", "золотистый"]),
            paired("Вес", 0, &["1,24 кг", "1,51 кг"]),
        ],
    ),
    family(
        "Apple",
        "M@@%3@@/A",
        &[line("MacBook Pro", 800, 1000)],
        &[
            any("Диагональ", &["14,2″", "16,2″"]),
            any("Процессор", &["Apple M3 Pro", "Apple M4 Pro", "Apple M4 Max"]),
            any("Оперативная память", &["18 ГБ", "24 ГБ", "36 ГБ", "48 ГБ"]),
            any("Объём SSD", &["512 ГБ", "1 ТБ", "2 ТБ"]),
            any("Операционная система", &["macOS"]),
            any("Цвет", &["серебристый", "чёрный"]),
            paired("Вес", 0, &["1,6 кг", "2,15 кг"]),
        ],
    ),
];

/// What sets laptops for games apart.
const GAMING: &[Spec] = &[
    any("Диагональ", &["15,6″", "16″", "17,3″"]),
    rising(
        "Процессор",
        &[
            "AMD Ryzen 5 7535HS",
            "Intel Core i5-13420H",
            "AMD Ryzen 7 7735HS",
            "AMD Ryzen 7 7435HS",
            "Intel Core i5-13450HX",
            "Intel Core i7-13650HX",
            "Intel Core i7-14700HX",
            "Intel Core i9-14900HX",
        ],
    ),
    rising("Оперативная память", &["16 ГБ", "16 ГБ", "16 ГБ", "16 ГБ", "16 ГБ", "32 ГБ", "64 ГБ"]),
    rising(
        "Видеокарта",
        &[
            "NVIDIA GeForce RTX 2050",
            "NVIDIA GeForce RTX 3050",
            "NVIDIA GeForce RTX 3050",
            "NVIDIA GeForce RTX 4050",
            "NVIDIA GeForce RTX 4050",
            "NVIDIA GeForce RTX 4060",
            "NVIDIA GeForce RTX 4070",
            "NVIDIA GeForce RTX 4080",
        ],
    ),
    any("Цвет", &["чёрный", "чёрный", "серый"]),
    paired("Вес", 0, &["2,1 кг", "2,4 кг", "2,7 кг"]),
];
