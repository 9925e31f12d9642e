//! «Компьютерные комплектующие».

use super::{Icon, Kind, PROMISES, any, exact, family, line, paired, rising, span};

/// Видеокарты.
pub(super) const GRAPHICS_CARD: Kind = Kind {
    weight: 3,
    icon: Icon::Graphics,
    title: "Видеокарта $B GeForce $0 $M, $1, $C",
    maker: "Бренд",
    families: &[
        family(
            "MSI",
            "912-V###-###",
            &[
                line("Ventus 2X", 0, 700),
                line("Gaming X Slim", 300, 1000),
                line("Suprim X", 800, 1000),
            ],
            &[],
        ),
        family(
            "ASUS",
            "90YV0@@#-M0NA0#",
            &[
                line("Dual OC", 0, 720),
                line("TUF Gaming", 400, 1000),
                line("ROG Strix OC", 780, 1000),
            ],
            &[],
        ),
        family(
            "GIGABYTE",
            "GV-N####-##GD",
            &[
                line("Windforce OC", 0, 800),
                line("Gaming OC", 300, 1000),
                line("Aero OC", 500, 900),
            ],
            &[],
        ),
        family(
            "Palit",
            "NE6####019P1-##%@",
            &[line("Dual", 0, 700), line("JetStream", 400, 900), line("GameRock", 700, 1000)],
            &[],
        ),
        family(
            "KFA2",
            "4%@@@@MD9@@@",
            &[line("1-Click OC", 0, 800), line("EX Gamer", 300, 900)],
            &[],
        ),
        family(
            "INNO3D",
            "N4###-0##6X-##",
            &[line("Twin X2", 0, 700), line("X3 OC", 500, 1000)],
            &[],
        ),
    ],
    specs: &[
        exact(
            "Графический процессор",
            &[
                "RTX 3050",
                "RTX 3060",
                "RTX 4060",
                "RTX 4060 Ti",
                "RTX 4070",
                "RTX 4070 SUPER",
                "RTX 4070 Ti SUPER",
                "RTX 4080 SUPER",
                "RTX 4090",
            ],
        ),
        paired(
            "Объём видеопамяти",
            0,
            &["6 ГБ", "12 ГБ", "8 ГБ", "8 ГБ", "12 ГБ", "12 ГБ", "16 ГБ", "16 ГБ", "24 ГБ"],
        ),
        paired(
            "Тип памяти",
            0,
            &["GDDR6", "GDDR6", "GDDR6", "GDDR6", "GDDR6X", "GDDR6X", "GDDR6X", "GDDR6X", "GDDR6X"],
        ),
        paired(
            "Рекомендуемый блок питания",
            0,
            &[
                "450 Вт", "550 Вт", "550 Вт", "550 Вт", "650 Вт", "650 Вт", "700 Вт", "750 Вт",
                "850 Вт",
            ],
        ),
        any("Разъёмы", &["HDMI, 3 × DisplayPort", "2 × HDMI, 2 × DisplayPort"]),
        span("Длина", 198, 338, 4, " мм"),
        any("Цвет", &["чёрный", "чёрный", "серый", "белый"]),
    ],
    words: &[],
    prices: [21_990, 36_990, 62_990, 104_990, 259_990],
    about: [
        &[
            "Видеокарта $B на базе GeForce $0 с памятью $1 для современных игр.",
            "GeForce $0 с $1 памяти: трассировка лучей и DLSS в играх и монтаже.",
        ],
        &[
            "Система охлаждения останавливает вентиляторы, пока нагрузка невелика.",
            "Рекомендуемый блок питания — $3, длина карты — $5.",
            "Усиленная задняя пластина защищает плату от прогиба.",
        ],
        PROMISES,
    ],
};

/// SSD-накопители.
pub(super) const DISK: Kind = Kind {
    weight: 3,
    icon: Icon::Disk,
    title: "SSD-накопитель $B $M $C, $0",
    maker: "Бренд",
    families: &[
        family(
            "Samsung",
            "MZ-V%@###BW",
            &[line("9[89]0 Pro", 560, 1000), line("990 EVO", 420, 760), line("980", 340, 600)],
            &[],
        ),
        family(
            "Kingston",
            "SNV%S@/###0G",
            &[line("NV[23]", 120, 560), line("KC3000", 420, 900), line("Fury Renegade", 560, 1000)],
            &[],
        ),
        family(
            "WD",
            "WDS###T%@0E",
            &[
                line("Blue SN5[78]0", 240, 640),
                line("Black SN[78][57]0X", 480, 1000),
                line("Green SN350", 80, 360),
            ],
            &[],
        ),
        family(
            "ADATA",
            "ALEG-###-###GCS",
            &[line("Legend [789][16]0", 140, 700), line("XPG Gammix S70", 480, 900)],
            &[],
        ),
        family(
            "Apacer",
            "AP###GAS@%##",
            &[line("AS350X", 0, 300), line("AS2280P4", 120, 560)],
            &[],
        ),
        family(
            "Netac",
            "NT01N###@-##-N4X",
            &[line("N5[35]0S", 0, 320), line("NV[37]000", 260, 780)],
            &[],
        ),
        family("AMD", "R5S###G@%", &[line("Radeon R5", 0, 300)], &[]),
    ],
    specs: &[
        rising(
            "Объём",
            &["128 ГБ", "256 ГБ", "512 ГБ", "512 ГБ", "1 ТБ", "1 ТБ", "2 ТБ", "2 ТБ", "4 ТБ"],
        ),
        exact(
            "Форм-фактор",
            &["2,5″", "2,5″", "M.2 2280", "M.2 2280", "M.2 2280", "M.2 2280", "M.2 2280"],
        ),
        exact(
            "Интерфейс",
            &[
                "SATA III",
                "SATA III",
                "PCIe 3.0 x4",
                "PCIe 4.0 x4",
                "PCIe 4.0 x4",
                "PCIe 4.0 x4",
                "PCIe 4.0 x4",
            ],
        ),
        exact(
            "Скорость чтения",
            &[
                "520 МБ/с",
                "560 МБ/с",
                "3500 МБ/с",
                "5000 МБ/с",
                "6000 МБ/с",
                "7000 МБ/с",
                "7450 МБ/с",
            ],
        ),
        any("Тип памяти", &["3D TLC", "3D TLC", "3D QLC"]),
        span("Ресурс записи", 80, 1200, 40, " ТБ"),
    ],
    words: &[],
    prices: [1_490, 3_990, 7_990, 14_990, 42_990],
    about: [
        &[
            "Твердотельный накопитель $B $M объёмом $0 ускорит загрузку системы и программ.",
            "Накопитель $0 с интерфейсом $2 и скоростью чтения до $3.",
        ],
        &[
            "Ресурс записи — $5, его хватает на годы работы.",
            "Форм-фактор $1 подходит большинству настольных компьютеров и ноутбуков.",
        ],
        PROMISES,
    ],
};

/// Материнские платы.
pub(super) const BOARD: Kind = Kind {
    weight: 2,
    icon: Icon::Board,
    title: "Материнская плата $B $0 $M, $3, $C",
    maker: "Бренд",
    families: &[
        family(
            "MSI",
            "911-7####-###",
            &[
                line("Pro-VDH WiFi", 100, 480),
                line("Gaming Plus", 300, 700),
                line("Tomahawk WiFi", 480, 860),
                line("Carbon WiFi", 760, 1000),
            ],
            &[],
        ),
        family(
            "ASUS",
            "90MB1@@#-M0EAY#",
            &[
                line("Prime K", 0, 420),
                line("TUF Gaming Plus", 320, 720),
                line("ROG Strix-F Gaming", 640, 1000),
            ],
            &[],
        ),
        family(
            "GIGABYTE",
            "9M@##%%@-00-G1#",
            &[line("DS3H", 0, 400), line("Gaming X", 300, 640), line("Aorus Elite AX", 480, 900)],
            &[],
        ),
        family(
            "ASRock",
            "90-MX@@@%-A0UAYZ",
            &[line("HDV/M.2", 0, 320), line("Pro RS", 260, 600), line("Steel Legend", 440, 820)],
            &[],
        ),
    ],
    specs: &[
        exact("Чипсет", &["A520M", "H610M", "B550M", "B760M", "B650", "B650E", "Z790", "X670E"]),
        paired("Сокет", 0, &["AM4", "LGA1700", "AM4", "LGA1700", "AM5", "AM5", "LGA1700", "AM5"]),
        paired("Форм-фактор", 0, &["mATX", "mATX", "mATX", "mATX", "ATX", "ATX", "ATX", "ATX"]),
        paired("Тип памяти", 0, &["DDR4", "DDR4", "DDR4", "DDR5", "DDR5", "DDR5", "DDR5", "DDR5"]),
        any("Слоты памяти", &["2", "4", "4"]),
        any("Разъёмы M.2", &["1", "2", "2", "3", "4"]),
        any("Беспроводная связь", &["", "Wi-Fi 6", "Wi-Fi 6E"]),
    ],
    words: &[],
    prices: [4_990, 9_490, 15_990, 27_990, 69_990],
    about: [
        &[
            "Материнская плата $B на чипсете $0 с сокетом $1 и памятью $3.",
            "Плата формата $2 для сборки домашнего или игрового компьютера.",
        ],
        &[
            "Радиаторы на цепях питания держат стабильную частоту под нагрузкой.",
            "Быстрые накопители подключаются к разъёмам M.2, их здесь: $5.",
        ],
        PROMISES,
    ],
};
