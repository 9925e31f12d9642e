//! «Аксессуары»: what is bought along with a gadget.

use super::{
    BRIGHT_COLOURS, GADGET_COLOURS, Icon, Kind, PROMISES, any, family, line, made, rising, span,
};

/// Чехлы.
pub(super) const CASE: Kind = Kind {
    weight: 3,
    icon: Icon::Case,
    title: "Чехол-$0 $B $M для $1, $3, арт. $C",
    maker: "Бренд",
    families: &[
        family(
            "Spigen",
            "ACS0#####",
            &[
                line("Liquid Air", 300, 700),
                line("Tough Armor", 450, 900),
                line("Ultra Hybrid", 300, 750),
            ],
            &[],
        ),
        family("Uniq", "@@@%###", &[line("Heldro", 350, 800), line("Lino Hue", 300, 700)], &[]),
        family(
            "Nillkin",
            "690#####",
            &[line("CamShield Pro", 250, 650), line("Frosted Shield", 200, 560)],
            &[],
        ),
        family(
            "BoraSCO",
            "7#####",
            &[line("Silicone", 60, 320), line("Microfiber", 120, 420)],
            &[],
        ),
        family("Red Line", "УТ0000####%", &[line("Ultimate", 40, 260), line("Book", 80, 320)], &[]),
        family(
            "UAG",
            "11####11####",
            &[line("Monarch", 760, 1000), line("Plasma", 640, 900), line("Pathfinder", 620, 860)],
            &[],
        ),
    ],
    specs: &[
        any("Тип", &["накладка", "накладка", "книжка", "бампер"]),
        made(
            "Совместимость",
            &[
                "Apple iPhone 1[3456]",
                "Apple iPhone 1[3456]",
                "Apple iPhone 1[3456] Pro Max",
                "Samsung Galaxy S2[345]",
                "Samsung Galaxy A[1235][56]",
                "Xiaomi Redmi Note 1[34]",
                "HONOR X[678]b",
                "realme C[56][135]",
                "POCO X[67] Pro",
                "HUAWEI nova 1[23]",
            ],
        ),
        any("Материал", &["силикон", "поликарбонат", "термополиуретан", "искусственная кожа"]),
        any("Цвет", BRIGHT_COLOURS),
        any("Беспроводная зарядка", &["", "поддерживается"]),
    ],
    words: &[],
    prices: [290, 690, 1_490, 2_990, 8_990],
    about: [
        &["Чехол $B защищает $1 от царапин и падений.", "Тонкий чехол для $1, материал — $2."],
        &[
            "Бортик вокруг камеры бережёт объективы.",
            "Все разъёмы и кнопки остаются доступны.",
            "Не желтеет и не скользит в руке.",
        ],
        &["Подходит и для защитного стекла.", "Снимается и надевается за пару секунд."],
    ],
};

/// Внешние аккумуляторы.
pub(super) const POWER_BANK: Kind = Kind {
    weight: 2,
    icon: Icon::Battery,
    title: "Внешний аккумулятор $B $M $C, $0, $3",
    maker: "Бренд",
    families: &[
        family(
            "Xiaomi",
            "PB##%@%ZM",
            &[line("Redmi Power Bank", 100, 480), line("Mi Power Bank 3", 260, 700)],
            &[],
        ),
        family(
            "Anker",
            "A1###@%#",
            &[line("PowerCore", 400, 860), line("Prime", 760, 1000), line("MagGo", 600, 900)],
            &[],
        ),
        family(
            "Baseus",
            "PP@@%##@",
            &[line("Adaman", 360, 720), line("Blade", 640, 900), line("Bipow", 200, 560)],
            &[],
        ),
        family("UGREEN", "2####@", &[line("Nexode", 460, 900), line("PB%##", 320, 640)], &[]),
        family("TFN", "TFN-PB-###-@@", &[line("PowerAid", 60, 360), line("Solid", 120, 440)], &[]),
        family("Olmio", "0#####", &[line("Q-%#", 100, 420), line("Slim", 80, 340)], &[]),
    ],
    specs: &[
        rising(
            "Ёмкость",
            &[
                "5000 мА·ч",
                "10 000 мА·ч",
                "10 000 мА·ч",
                "20 000 мА·ч",
                "20 000 мА·ч",
                "30 000 мА·ч",
            ],
        ),
        rising(
            "Выходная мощность",
            &["10 Вт", "18 Вт", "22,5 Вт", "22,5 Вт", "30 Вт", "65 Вт", "100 Вт"],
        ),
        any("Разъёмы", &["USB-A, USB-C", "2 × USB-A, USB-C", "USB-C", "USB-A, 2 × USB-C"]),
        any("Цвет", GADGET_COLOURS),
        any("Индикация заряда", &["светодиоды", "светодиоды", "цифровой экран"]),
        span("Вес", 140, 620, 5, " г"),
    ],
    words: &[],
    prices: [690, 1_490, 2_990, 5_490, 16_990],
    about: [
        &[
            "Внешний аккумулятор $B ёмкостью $0 зарядит смартфон в дороге.",
            "Пауэрбанк $M: $0, мощность до $1.",
        ],
        &[
            "Разъёмы: $2 — можно заряжать несколько устройств сразу.",
            "Индикация заряда — $4.",
            "Разрешён к провозу в ручной клади.",
        ],
        PROMISES,
    ],
};

/// Зарядные устройства.
pub(super) const CHARGER: Kind = Kind {
    weight: 2,
    icon: Icon::Plug,
    title: "Сетевое зарядное устройство $B $M $C, $0, $3",
    maker: "Бренд",
    families: &[
        family(
            "Apple",
            "M@@%3@@/A",
            &[line("Power Adapter", 500, 900)],
            &[any("Цвет", &["белый"]), any("Разъёмы", &["USB-C"])],
        ),
        family("Samsung", "EP-T%##0@@", &[line("Travel Adapter", 320, 640)], &[]),
        family(
            "Baseus",
            "CCGAN###@@",
            &[line("GaN5 Pro", 480, 900), line("Compact", 160, 460)],
            &[],
        ),
        family(
            "UGREEN",
            "9####@",
            &[line("Nexode Pro", 520, 1000), line("Robot GaN", 420, 720)],
            &[],
        ),
        family("Anker", "A2###@%#", &[line("Nano II", 420, 700), line("Prime", 760, 1000)], &[]),
        family("Buro", "BUTJ%@##", &[line("TJ", 20, 260), line("XCJ-0##", 0, 240)], &[]),
    ],
    specs: &[
        rising(
            "Мощность",
            &["10 Вт", "18 Вт", "20 Вт", "25 Вт", "33 Вт", "45 Вт", "65 Вт", "100 Вт", "140 Вт"],
        ),
        any("Разъёмы", &["USB-C", "USB-A", "USB-A, USB-C", "2 × USB-C, USB-A"]),
        any("Быстрая зарядка", &["PD 3.0", "PD 3.0, QC 4.0", "QC 3.0"]),
        any("Цвет", &["белый", "белый", "чёрный", "серый"]),
        any("Кабель в комплекте", &["нет", "есть, 1 м", "есть, 1,5 м"]),
    ],
    words: &[],
    prices: [390, 990, 1_990, 3_990, 12_990],
    about: [
        &[
            "Зарядное устройство $B мощностью $0 для смартфонов и планшетов.",
            "Компактная зарядка $M: $0, разъёмы — $1.",
        ],
        &["Поддерживает $2 и защищает технику от перегрева.", "Кабель в комплекте: $4."],
        PROMISES,
    ],
};
