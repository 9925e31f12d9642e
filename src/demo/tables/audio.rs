//! What people listen to.

use super::{Family, GADGET_COLOURS, Icon, Kind, PROMISES, Spec, any, family, line, rising, span};

/// Наушники.
pub(super) const HEADPHONES: Kind = Kind {
    weight: 8,
    icon: Icon::Headphones,
    title: "Наушники $0 $B $M $C $4",
    maker: "Бренд",
    families: HEADPHONE_FAMILIES,
    specs: &[
        any("Тип", &["накладные", "полноразмерные"]),
        any(
            "Подключение",
            &["Bluetooth 5.0", "Bluetooth 5.2", "Bluetooth 5.3", "Bluetooth 5.3", "кабель 3,5 мм"],
        ),
        rising(
            "Шумоподавление",
            &["нет", "нет", "пассивное", "активное", "активное", "адаптивное"],
        ),
        rising("Время работы", &["4 ч", "6 ч", "20 ч", "24 ч", "30 ч", "40 ч", "60 ч"]),
        any("Цвет", GADGET_COLOURS),
        any("Диапазон частот", &["20–20 000 Гц", "16–22 000 Гц", "10–40 000 Гц"]),
        any("Микрофон", &["есть", "есть", "есть", "съёмный"]),
        any("Влагозащита", &["", "", "IPX4", "IPX5", "IP55"]),
    ],
    words: &[],
    prices: [690, 2_490, 6_990, 19_990, 74_990],
    about: [
        &[
            "Наушники $B $M с чистым звуком и уверенными низами.",
            "Лёгкие наушники ($0) для музыки, звонков и поездок в метро.",
        ],
        &[
            "Шумоподавление — $2, время работы — $3.",
            "Подключение — $1, диапазон частот $5.",
            "Удобная посадка: не устаёшь даже за целый рабочий день.",
        ],
        PROMISES,
    ],
};

/// Беспроводные наушники.
pub(super) const TRUE_WIRELESS: Kind =
    Kind { weight: 6, icon: Icon::Earbuds, families: EARBUD_FAMILIES, ..HEADPHONES };

const EARBUDS: &[Spec] = &[
    any("Тип", &["беспроводные"]),
    any("Подключение", &["Bluetooth 5.2", "Bluetooth 5.3", "Bluetooth 5.4"]),
    rising("Время работы", &["4 ч", "5 ч", "5 ч", "6 ч", "6 ч", "8 ч"]),
    any("Микрофон", &["есть"]),
];

const AIRPODS: &[Spec] = &[
    any("Тип", &["беспроводные"]),
    any("Подключение", &["Bluetooth 5.3"]),
    any("Шумоподавление", &["активное"]),
    any("Время работы", &["5 ч", "6 ч"]),
    any("Цвет", &["белый"]),
    any("Микрофон", &["есть"]),
    any("Влагозащита", &["IP54"]),
];

const OVER_EAR: &[Spec] = &[
    any("Тип", &["накладные", "полноразмерные"]),
    any("Подключение", &["Bluetooth 5.2", "Bluetooth 5.3"]),
];

const MARSHALL: &[Spec] = &[
    any("Тип", &["накладные"]),
    any("Подключение", &["Bluetooth 5.0", "Bluetooth 5.3"]),
    any("Цвет", &["чёрный", "чёрный", "бежевый"]),
];

const WIRED: &[Spec] = &[
    any("Тип", &["проводные"]),
    any("Подключение", &["кабель 3,5 мм", "USB-C"]),
    any("Шумоподавление", &["нет", "пассивное"]),
    any("Время работы", &["не ограничено"]),
    any("Цвет", &["чёрный", "чёрный", "белый"]),
    any("Влагозащита", &[""]),
];

const HEADPHONE_FAMILIES: &[Family] = &[
    family(
        "JBL",
        "JBL@%##@@@",
        &[line("Tune [57][127]0BT", 360, 560), line("Live [67]70NC", 560, 700)],
        OVER_EAR,
    ),
    family(
        "Sony",
        "CE7@@##",
        &[line("WH-CH[57]20N", 460, 620), line("WH-1000XM[45]", 780, 880)],
        OVER_EAR,
    ),
    family(
        "Marshall",
        "100####%",
        &[line("Major [45]", 580, 680), line("Monitor II A.N.C.", 720, 820)],
        MARSHALL,
    ),
    family(
        "Soundcore",
        "A30##@##",
        &[line("Life Q[23]0", 360, 500), line("Space One", 520, 620)],
        OVER_EAR,
    ),
    family(
        "Bose",
        "88####-0#00",
        &[line("QuietComfort", 760, 850), line("QuietComfort Ultra", 840, 930)],
        OVER_EAR,
    ),
    family(
        "Bowers & Wilkins",
        "FP4#####",
        &[line("Px7 S2e", 830, 900), line("Px8", 920, 1000)],
        OVER_EAR,
    ),
    family(
        "Sennheiser",
        "50#####",
        &[
            line("HD [25]00 Pro", 400, 560),
            line("HD 6[56]0S", 800, 900),
            line("IE [23]00", 680, 800),
        ],
        WIRED,
    ),
    family("Audio-Technica", "1500#####", &[line("ATH-M[2345]0x", 440, 700)], WIRED),
    family(
        "HyperX",
        "4P5@%@@",
        &[line("Cloud III", 560, 660), line("Cloud Stinger 2", 360, 480)],
        WIRED,
    ),
    family("Defender", "63####%", &[line("Basic 6##", 0, 120), line("Aura 10#", 60, 200)], WIRED),
];

const EARBUD_FAMILIES: &[Family] = &[
    family(
        "Apple",
        "M@@%3@@/A",
        &[line("AirPods 4", 680, 760), line("AirPods Pro 2", 780, 860)],
        AIRPODS,
    ),
    family(
        "Samsung",
        "SM-R%##NZ@@",
        &[line("Galaxy Buds FE", 480, 580), line("Galaxy Buds[23] Pro", 640, 780)],
        EARBUDS,
    ),
    family(
        "HUAWEI",
        "T00##@@",
        &[
            line("FreeBuds SE [23]", 250, 400),
            line("FreeBuds [56]i", 420, 560),
            line("FreeBuds Pro [34]", 640, 780),
        ],
        EARBUDS,
    ),
    family(
        "Xiaomi",
        "M2###E%@",
        &[line("Redmi Buds [456]", 160, 360), line("Buds 5 Pro", 520, 640)],
        EARBUDS,
    ),
    family(
        "realme",
        "RMA2###@",
        &[line("Buds T[13]00", 180, 350), line("Buds Air [56]", 340, 500)],
        EARBUDS,
    ),
    family(
        "JBL",
        "JBL@@@%##",
        &[line("Wave Beam", 340, 470), line("Tune Beam", 400, 520), line("Live Pro 2", 560, 680)],
        EARBUDS,
    ),
    family(
        "Sony",
        "WF%###@.E",
        &[line("WF-C[57]00N", 480, 620), line("WF-1000XM5", 800, 880)],
        EARBUDS,
    ),
];

/// Портативные колонки.
pub(super) const SPEAKER: Kind = Kind {
    weight: 6,
    icon: Icon::Speaker,
    title: "Портативная колонка $B $M $C $3",
    maker: "Бренд",
    families: &[
        family(
            "JBL",
            "JBL@@@@%###",
            &[
                line("Go [34]", 180, 320),
                line("Flip [56]", 400, 520),
                line("Charge 5", 520, 620),
                line("Boombox 3", 800, 920),
                line("PartyBox [13]10", 860, 1000),
            ],
            &[],
        ),
        family(
            "Яндекс",
            "YNDX-00###@@",
            &[
                line("Станция Лайт 2", 280, 400),
                line("Станция Миди", 500, 600),
                line("Станция Макс", 680, 780),
            ],
            &[any("Голосовой помощник", &["Алиса"])],
        ),
        family(
            "Sber",
            "SBDV-00###@@",
            &[line("SberBoom Mini 2", 240, 360), line("SberBoom Home", 480, 600)],
            &[any("Голосовой помощник", &["Салют"])],
        ),
        family(
            "Sony",
            "SRSX@%##",
            &[
                line("SRS-XB100", 260, 380),
                line("SRS-XG[35]00", 680, 840),
                line("ULT Field [15]", 460, 640),
            ],
            &[],
        ),
        family(
            "Marshall",
            "100####%",
            &[
                line("Emberton II", 560, 680),
                line("Stanmore III", 800, 900),
                line("Willen", 440, 540),
            ],
            &[any("Цвет", &["чёрный", "чёрный", "бежевый"])],
        ),
        family(
            "Bang & Olufsen",
            "16#####",
            &[
                line("Beosound A1", 720, 820),
                line("Beosound Explore", 640, 740),
                line("Beolit 20", 860, 960),
            ],
            &[],
        ),
        family(
            "Tronsmart",
            "T%###@",
            &[line("T7 Lite", 200, 340), line("Bang SE", 300, 440), line("Element Mega", 260, 400)],
            &[],
        ),
        family("Sven", "SV-0#####", &[line("PS-%%0", 40, 240), line("PS-%%5", 60, 260)], &[]),
    ],
    specs: &[
        rising(
            "Мощность",
            &["3 Вт", "5 Вт", "10 Вт", "20 Вт", "30 Вт", "40 Вт", "80 Вт", "180 Вт"],
        ),
        any("Время работы", &["7 ч", "10 ч", "12 ч", "15 ч", "20 ч", "24 ч"]),
        any("Влагозащита", &["", "IPX5", "IPX7", "IP67", "IP67"]),
        any("Цвет", GADGET_COLOURS),
        any("Bluetooth", &["5.0", "5.1", "5.3", "5.3"]),
        any("Голосовой помощник", &[""]),
        span("Вес", 180, 2400, 20, " г"),
    ],
    words: &[],
    prices: [790, 2_490, 7_490, 21_990, 69_990],
    about: [
        &[
            "Колонка $B $M мощностью $0 для дома, дачи и поездок.",
            "Компактная колонка с громким звуком: $0 и до $1 работы без розетки.",
        ],
        &[
            "Две колонки можно объединить в стереопару.",
            "Прочный корпус не боится падений и пыли.",
            "Bluetooth $4 держит связь на расстоянии до десяти метров.",
        ],
        PROMISES,
    ],
};
