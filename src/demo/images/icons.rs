//! The drawings, one for each icon: SVG fragments in a square of 240 by 240.
//!
//! Colours are marks that `images` fills in: `~b` the body, `~d` its shade, `~l` its light side,
//! `~a` the accent, `~k` ink. White is written out.

use super::super::tables::Icon;

/// The drawing of an icon, an element on each line.
pub(super) fn drawing(icon: Icon) -> &'static str {
    match icon {
        Icon::Battery => BATTERY,
        Icon::Bike => BIKE,
        Icon::Board => BOARD,
        Icon::Book => BOOK,
        Icon::Bottle => BOTTLE,
        Icon::Bricks => BRICKS,
        Icon::Camera => CAMERA,
        Icon::Case => CASE,
        Icon::Console => CONSOLE,
        Icon::Dashcam => DASHCAM,
        Icon::Dice => DICE,
        Icon::Disk => DISK,
        Icon::Dryer => DRYER,
        Icon::Earbuds => EARBUDS,
        Icon::Fridge => FRIDGE,
        Icon::Graphics => GRAPHICS,
        Icon::Headphones => HEADPHONES,
        Icon::Kettle => KETTLE,
        Icon::Lamp => LAMP,
        Icon::Laptop => LAPTOP,
        Icon::Microwave => MICROWAVE,
        Icon::Oil => OIL,
        Icon::Pan => PAN,
        Icon::Paw => PAW,
        Icon::Phone => PHONE,
        Icon::Plug => PLUG,
        Icon::Shirt => SHIRT,
        Icon::Shoe => SHOE,
        Icon::Speaker => SPEAKER,
        Icon::Tablet => TABLET,
        Icon::Tent => TENT,
        Icon::Tv => TV,
        Icon::Tyre => TYRE,
        Icon::Vacuum => VACUUM,
        Icon::Washer => WASHER,
        Icon::Watch => WATCH,
    }
}

const PHONE: &str = r##"
<rect x="70" y="14" width="100" height="206" rx="20" fill="~d"/>
<rect x="74" y="14" width="96" height="204" rx="18" fill="~b"/>
<rect x="81" y="22" width="82" height="188" rx="12" fill="~k"/>
<path d="M81 150q40-44 82-24v72a12 12 0 0 1-12 12H93a12 12 0 0 1-12-12z" fill="~a" opacity=".85"/>
<circle cx="136" cy="86" r="17" fill="~a" opacity=".55"/>
<rect x="108" y="29" width="28" height="8" rx="4" fill="#000"/>"##;

const TABLET: &str = r#"
<rect x="22" y="34" width="200" height="172" rx="16" fill="~d"/>
<rect x="18" y="32" width="200" height="172" rx="16" fill="~b"/>
<rect x="30" y="44" width="176" height="148" rx="6" fill="~k"/>
<path d="M30 160l52-48 40 34 30-24 54 44v20a6 6 0 0 1-6 6H36a6 6 0 0 1-6-6z" fill="~a" opacity=".85"/>
<circle cx="160" cy="80" r="15" fill="~a" opacity=".55"/>"#;

const LAPTOP: &str = r#"
<rect x="36" y="44" width="168" height="118" rx="10" fill="~b"/>
<rect x="44" y="52" width="152" height="100" rx="4" fill="~k"/>
<path d="M44 122q44-50 84-18t68-20v64a4 4 0 0 1-4 4H48a4 4 0 0 1-4-4z" fill="~a" opacity=".85"/>
<path d="M12 166h216l-10 22a10 10 0 0 1-9 6H31a10 10 0 0 1-9-6z" fill="~d"/>
<path d="M12 162h216v7H12z" fill="~l"/>
<path d="M98 169h44l-5 8h-34z" fill="~b"/>"#;

const TV: &str = r#"
<rect x="8" y="40" width="224" height="140" rx="8" fill="~d"/>
<rect x="14" y="46" width="212" height="126" rx="4" fill="~k"/>
<path d="M14 140q60-66 106-30t106-36v94a4 4 0 0 1-4 4H18a4 4 0 0 1-4-4z" fill="~a" opacity=".85"/>
<circle cx="66" cy="82" r="16" fill="~a" opacity=".5"/>
<path d="M70 180l-14 26M170 180l14 26" stroke="~d" stroke-width="9" stroke-linecap="round"/>"#;

const HEADPHONES: &str = r#"
<path d="M44 150v-26a76 76 0 0 1 152 0v26" fill="none" stroke="~d" stroke-width="15"/>
<path d="M52 104a70 70 0 0 1 136 0" fill="none" stroke="~b" stroke-width="11" stroke-linecap="round"/>
<rect x="26" y="126" width="46" height="84" rx="21" fill="~b"/>
<rect x="168" y="126" width="46" height="84" rx="21" fill="~b"/>
<rect x="62" y="132" width="19" height="72" rx="9" fill="~k"/>
<rect x="159" y="132" width="19" height="72" rx="9" fill="~k"/>
<circle cx="45" cy="168" r="9" fill="~a"/>
<circle cx="195" cy="168" r="9" fill="~a"/>"#;

const EARBUDS: &str = r#"
<rect x="44" y="116" width="152" height="106" rx="40" fill="~d"/>
<rect x="44" y="112" width="152" height="104" rx="40" fill="~b"/>
<path d="M44 146h152" stroke="~d" stroke-width="4"/>
<circle cx="120" cy="176" r="6" fill="~a"/>
<path d="M72 38a27 27 0 0 1 30 27v48a9 9 0 0 1-18 0V91a27 27 0 0 1-12-53z" fill="~l"/>
<path d="M168 38a27 27 0 0 0-30 27v48a9 9 0 0 0 18 0V91a27 27 0 0 0 12-53z" fill="~l"/>
<circle cx="72" cy="64" r="25" fill="~b"/>
<circle cx="168" cy="64" r="25" fill="~b"/>
<ellipse cx="58" cy="64" rx="9" ry="16" fill="~k"/>
<ellipse cx="182" cy="64" rx="9" ry="16" fill="~k"/>
<circle cx="93" cy="74" r="4" fill="~a"/>
<circle cx="147" cy="74" r="4" fill="~a"/>"#;

const WATCH: &str = r##"
<path d="M86 12h68l8 62H78zM86 228h68l8-62H78z" fill="~d"/>
<rect x="62" y="60" width="116" height="120" rx="32" fill="~b"/>
<rect x="71" y="69" width="98" height="102" rx="25" fill="~k"/>
<circle cx="120" cy="120" r="34" fill="none" stroke="~a" stroke-width="9" opacity=".35"/>
<path d="M120 86a34 34 0 1 1-33 42" fill="none" stroke="~a" stroke-width="9" stroke-linecap="round"/>
<path d="M120 100v21l13 9" fill="none" stroke="#fff" stroke-width="5" stroke-linecap="round"/>
<rect x="178" y="104" width="9" height="30" rx="4" fill="~d"/>"##;

const CAMERA: &str = r##"
<path d="M84 48h72l14 24H70z" fill="~d"/>
<rect x="20" y="68" width="200" height="134" rx="18" fill="~b"/>
<path d="M20 104h200v56H20z" fill="~k" opacity=".8"/>
<circle cx="120" cy="134" r="58" fill="~l"/>
<circle cx="120" cy="134" r="50" fill="~k"/>
<circle cx="120" cy="134" r="32" fill="~a"/>
<circle cx="120" cy="134" r="17" fill="~k"/>
<circle cx="107" cy="121" r="8" fill="#fff" opacity=".8"/>
<rect x="36" y="56" width="30" height="12" rx="5" fill="~d"/>
<circle cx="197" cy="87" r="8" fill="~a"/>"##;

const SPEAKER: &str = r#"
<rect x="56" y="18" width="128" height="200" rx="34" fill="~d"/>
<rect x="60" y="18" width="120" height="196" rx="32" fill="~b"/>
<circle cx="120" cy="72" r="25" fill="~k"/>
<circle cx="120" cy="72" r="11" fill="~a"/>
<circle cx="120" cy="150" r="45" fill="~k"/>
<circle cx="120" cy="150" r="31" fill="~d"/>
<circle cx="120" cy="150" r="15" fill="~a"/>
<path d="M102 34h36" stroke="~l" stroke-width="6" stroke-linecap="round"/>"#;

const CONSOLE: &str = r#"
<path d="M70 72h100c34 0 58 62 50 108-4 24-32 24-44 4l-14-24H78l-14 24c-12 20-40 20-44-4C12 134 36 72 70 72z" fill="~d"/>
<path d="M70 66h100c34 0 56 60 48 104-4 22-30 22-42 2l-14-22H78l-14 22c-12 20-38 20-42-2C14 126 36 66 70 66z" fill="~b"/>
<path d="M70 92v36M52 110h36" stroke="~k" stroke-width="13" stroke-linecap="round"/>
<circle cx="170" cy="92" r="9" fill="~a"/>
<circle cx="170" cy="128" r="9" fill="~a"/>
<circle cx="152" cy="110" r="9" fill="~k"/>
<circle cx="188" cy="110" r="9" fill="~k"/>
<rect x="104" y="84" width="32" height="15" rx="7" fill="~k"/>"#;

const WASHER: &str = r##"
<rect x="38" y="14" width="164" height="208" rx="12" fill="~d"/>
<rect x="38" y="14" width="164" height="202" rx="12" fill="~b"/>
<path d="M38 58h164" stroke="~d" stroke-width="4"/>
<rect x="50" y="26" width="52" height="20" rx="5" fill="~d"/>
<circle cx="178" cy="36" r="11" fill="~a"/>
<rect x="116" y="28" width="40" height="16" rx="4" fill="~k"/>
<circle cx="120" cy="136" r="62" fill="~l"/>
<circle cx="120" cy="136" r="50" fill="~k"/>
<path d="M72 142q24-18 48 0t48 0a50 50 0 0 1-96 0z" fill="~a" opacity=".85"/>
<circle cx="104" cy="114" r="7" fill="#fff" opacity=".6"/>
<circle cx="130" cy="104" r="4" fill="#fff" opacity=".6"/>"##;

const FRIDGE: &str = r#"
<rect x="62" y="10" width="116" height="212" rx="13" fill="~d"/>
<rect x="62" y="10" width="112" height="208" rx="13" fill="~b"/>
<path d="M62 92h112" stroke="~d" stroke-width="5"/>
<rect x="74" y="46" width="9" height="34" rx="4" fill="~k"/>
<rect x="74" y="104" width="9" height="50" rx="4" fill="~k"/>
<rect x="112" y="28" width="44" height="27" rx="5" fill="~a"/>
<path d="M72 218v10M164 218v10" stroke="~k" stroke-width="9"/>"#;

const VACUUM: &str = r#"
<ellipse cx="120" cy="146" rx="104" ry="66" fill="~d"/>
<ellipse cx="120" cy="130" rx="104" ry="66" fill="~b"/>
<ellipse cx="120" cy="127" rx="86" ry="52" fill="~l"/>
<ellipse cx="120" cy="108" rx="36" ry="18" fill="~k"/>
<ellipse cx="120" cy="102" rx="36" ry="18" fill="~d"/>
<circle cx="120" cy="152" r="9" fill="~a"/>
<path d="M28 172q92 66 184 0" fill="none" stroke="~k" stroke-width="6"/>
<path d="M46 188l-22 20M40 182l-30 6" stroke="~a" stroke-width="5" stroke-linecap="round"/>"#;

const MICROWAVE: &str = r##"
<rect x="10" y="50" width="220" height="150" rx="12" fill="~d"/>
<rect x="10" y="50" width="220" height="144" rx="12" fill="~b"/>
<rect x="24" y="66" width="146" height="112" rx="9" fill="~k"/>
<ellipse cx="97" cy="152" rx="50" ry="9" fill="~l"/>
<path d="M72 124h50v14a14 14 0 0 1-14 14H86a14 14 0 0 1-14-14z" fill="~a"/>
<path d="M86 114q-6-9 0-18M104 114q-6-9 0-18" fill="none" stroke="#fff" stroke-width="4" stroke-linecap="round" opacity=".7"/>
<rect x="182" y="68" width="36" height="20" rx="4" fill="~k"/>
<circle cx="200" cy="114" r="13" fill="~a"/>
<circle cx="200" cy="154" r="13" fill="~d"/>
<path d="M30 200v10M210 200v10" stroke="~k" stroke-width="12"/>"##;

const GRAPHICS: &str = r##"
<path d="M14 62h14v132H14z" fill="~l"/>
<rect x="24" y="70" width="204" height="106" rx="12" fill="~k"/>
<rect x="30" y="64" width="198" height="106" rx="12" fill="~b"/>
<circle cx="80" cy="117" r="41" fill="~k"/>
<circle cx="178" cy="117" r="41" fill="~k"/>
<path d="M80 80q15 19 0 37q-15-19 0-37zM80 154q-15-19 0-37q15 19 0 37zM43 117q19-15 37 0q-19 15-37 0zM117 117q-19 15-37 0q19-15 37 0zM178 80q15 19 0 37q-15-19 0-37zM178 154q-15-19 0-37q15 19 0 37zM141 117q19-15 37 0q-19 15-37 0zM215 117q-19 15-37 0q19-15 37 0z" fill="~a"/>
<path d="M60 176h90v15H60z" fill="#e0b34a"/>"##;

const DISK: &str = r##"
<rect x="12" y="76" width="216" height="92" rx="8" fill="~d"/>
<rect x="12" y="72" width="216" height="90" rx="8" fill="~k"/>
<path d="M12 92H2v54h10z" fill="#e0b34a"/>
<rect x="30" y="86" width="62" height="62" rx="5" fill="~b"/>
<rect x="102" y="86" width="62" height="62" rx="5" fill="~b"/>
<rect x="174" y="86" width="30" height="30" rx="4" fill="~a"/>
<path d="M40 104h42M40 118h28M112 104h42M112 118h28" stroke="#fff" stroke-width="5" opacity=".7"/>
<path d="M228 106a11 11 0 0 0 0 22z" fill="#fff"/>
<circle cx="189" cy="136" r="8" fill="~d"/>"##;

const BOARD: &str = r##"
<rect x="30" y="20" width="180" height="200" rx="10" fill="~d"/>
<rect x="30" y="18" width="180" height="196" rx="10" fill="~b"/>
<rect x="62" y="46" width="66" height="66" rx="6" fill="~k"/>
<rect x="74" y="58" width="42" height="42" rx="3" fill="~l"/>
<path d="M150 38v84M166 38v84M182 38v84" stroke="~a" stroke-width="9"/>
<path d="M50 150h110M50 176h110" stroke="~k" stroke-width="12"/>
<path d="M50 150h80M50 176h80" stroke="~a" stroke-width="4"/>
<circle cx="186" cy="152" r="13" fill="#e0b34a"/>
<path d="M176 184h22v16h-22z" fill="~k"/>
<path d="M30 40H20v26h10M30 78H20v26h10" fill="~l"/>"##;

const CASE: &str = r##"
<rect x="66" y="14" width="112" height="208" rx="26" fill="~d"/>
<rect x="62" y="12" width="112" height="206" rx="26" fill="~b"/>
<rect x="74" y="26" width="56" height="66" rx="17" fill="~k"/>
<circle cx="92" cy="46" r="12" fill="~a"/>
<circle cx="92" cy="46" r="5" fill="~k"/>
<circle cx="92" cy="74" r="12" fill="~a"/>
<circle cx="92" cy="74" r="5" fill="~k"/>
<circle cx="116" cy="60" r="6" fill="#fff" opacity=".8"/>
<circle cx="118" cy="148" r="30" fill="none" stroke="~l" stroke-width="6"/>
<path d="M118 184v18" stroke="~l" stroke-width="6" stroke-linecap="round"/>"##;

const BATTERY: &str = r#"
<rect x="64" y="14" width="116" height="208" rx="18" fill="~d"/>
<rect x="60" y="12" width="116" height="206" rx="18" fill="~b"/>
<path d="M130 62l-40 64h26l-10 50 42-68h-26z" fill="~a"/>
<circle cx="92" cy="200" r="5" fill="~l"/>
<circle cx="110" cy="200" r="5" fill="~l"/>
<circle cx="128" cy="200" r="5" fill="~l"/>
<circle cx="146" cy="200" r="5" fill="~k"/>
<rect x="96" y="22" width="44" height="12" rx="6" fill="~k"/>"#;

const PLUG: &str = r##"
<path d="M92 20v44M148 20v44" stroke="#9aa3b2" stroke-width="13" stroke-linecap="round"/>
<rect x="58" y="56" width="128" height="124" rx="24" fill="~d"/>
<rect x="54" y="56" width="128" height="120" rx="24" fill="~b"/>
<path d="M126 84l-28 42h18l-8 30 32-44h-20z" fill="~a"/>
<path d="M118 176v20q0 24 28 24h40" fill="none" stroke="~k" stroke-width="9" stroke-linecap="round"/>
<rect x="182" y="208" width="32" height="22" rx="6" fill="~k"/>"##;

const BOOK: &str = r##"
<path d="M52 26h128a10 10 0 0 1 10 10v180H62a18 18 0 0 1-18-18V34a8 8 0 0 1 8-8z" fill="~d"/>
<path d="M58 186h126v24H62a12 12 0 0 1-4-24z" fill="#fff"/>
<path d="M62 192h122M62 200h122" stroke="#d7d9df" stroke-width="2"/>
<path d="M52 20h130a8 8 0 0 1 8 8v158H62a18 18 0 0 0-18 14V28a8 8 0 0 1 8-8z" fill="~b"/>
<path d="M64 20v166" stroke="~d" stroke-width="5"/>
<rect x="86" y="48" width="80" height="58" rx="5" fill="~a"/>
<path d="M98 64h56M98 78h56M98 92h34" stroke="#fff" stroke-width="6" stroke-linecap="round"/>
<path d="M106 140h40" stroke="~l" stroke-width="6" stroke-linecap="round"/>
<path d="M150 186h18v42l-9-8-9 8z" fill="~a"/>"##;

const PAN: &str = r##"
<path d="M168 128l60-40" stroke="~k" stroke-width="19" stroke-linecap="round"/>
<ellipse cx="100" cy="146" rx="92" ry="60" fill="~d"/>
<ellipse cx="100" cy="136" rx="92" ry="58" fill="~b"/>
<ellipse cx="100" cy="134" rx="74" ry="44" fill="~k"/>
<path d="M62 130c4-24 34-26 46-16s40 2 38 24-30 30-50 24-38-10-34-32z" fill="#fff"/>
<circle cx="102" cy="136" r="15" fill="#f6b93b"/>
<path d="M70 66q-8-12 0-24M100 60q-8-12 0-24M130 66q-8-12 0-24" fill="none" stroke="~a" stroke-width="6" stroke-linecap="round"/>"##;

const KETTLE: &str = r#"
<path d="M168 74q48 0 44 52t-42 62" fill="none" stroke="~k" stroke-width="15" stroke-linecap="round"/>
<path d="M66 70L34 92l26 34z" fill="~d"/>
<path d="M74 50h84l24 150a8 8 0 0 1-8 10H58a8 8 0 0 1-8-10z" fill="~b"/>
<path d="M74 50h20L78 210H58a8 8 0 0 1-8-10z" fill="~l"/>
<path d="M78 38h76a8 8 0 0 1 8 12H70a8 8 0 0 1 8-12z" fill="~d"/>
<rect x="104" y="22" width="24" height="18" rx="7" fill="~k"/>
<path d="M44 210h144v10a6 6 0 0 1-6 6H50a6 6 0 0 1-6-6z" fill="~k"/>
<rect x="128" y="104" width="14" height="66" rx="7" fill="~k"/>
<path d="M128 134h14v29a7 7 0 0 1-14 0z" fill="~a"/>"#;

const LAMP: &str = r##"
<path d="M108 92L10 226h196z" fill="~a" opacity=".22"/>
<path d="M130 44l52 58-44 104" fill="none" stroke="~d" stroke-width="10" stroke-linejoin="round"/>
<circle cx="182" cy="102" r="10" fill="~k"/>
<path d="M94 24l54 34-56 54-50-20z" fill="~b"/>
<path d="M42 92l50 20-8 10-44-18z" fill="#ffe08a"/>
<path d="M94 206h88a10 10 0 0 1 10 10v8H84v-8a10 10 0 0 1 10-10z" fill="~b"/>
<circle cx="138" cy="46" r="9" fill="~k"/>"##;

const SHOE: &str = r##"
<path d="M22 92c18 12 38 8 50-14l18-14c18 34 46 54 84 62 32 6 48 20 48 50H22c-8-26-8-58 0-84z" fill="~b"/>
<path d="M22 92c18 12 38 8 50-14l10-8c10 20 20 34 34 46-30 30-66 34-98 30-1-20 0-38 4-54z" fill="~d"/>
<path d="M94 92l24-12M108 106l24-14M124 118l22-16" stroke="#fff" stroke-width="7" stroke-linecap="round"/>
<path d="M64 156q60 0 96-30" fill="none" stroke="~a" stroke-width="11" stroke-linecap="round"/>
<path d="M16 172h208v10a18 18 0 0 1-18 18H34a18 18 0 0 1-18-18z" fill="#fff"/>
<path d="M16 188h208a18 18 0 0 1-18 14H34a18 18 0 0 1-18-14z" fill="~k"/>"##;

const SHIRT: &str = r#"
<path d="M84 24L18 60l22 58 26-12v112h108V106l26 12 22-58-66-36a37 37 0 0 1-72 0z" fill="~d"/>
<path d="M84 20L18 56l22 56 26-12v112h108V100l26 12 22-56-66-36a37 37 0 0 1-72 0z" fill="~b"/>
<path d="M84 20a37 37 0 0 0 72 0" fill="none" stroke="~l" stroke-width="8"/>
<path d="M92 128h56M92 146h56M92 164h56" stroke="~a" stroke-width="9" stroke-linecap="round"/>"#;

const BRICKS: &str = r##"
<rect x="24" y="140" width="110" height="72" rx="6" fill="~b"/>
<rect x="36" y="126" width="34" height="16" rx="4" fill="~b"/>
<rect x="88" y="126" width="34" height="16" rx="4" fill="~b"/>
<path d="M24 196h110v10a6 6 0 0 1-6 6H30a6 6 0 0 1-6-6z" fill="~d"/>
<rect x="142" y="140" width="74" height="72" rx="6" fill="~a"/>
<rect x="162" y="126" width="34" height="16" rx="4" fill="~a"/>
<rect x="74" y="54" width="110" height="72" rx="6" fill="#f6b93b"/>
<rect x="86" y="40" width="34" height="16" rx="4" fill="#f6b93b"/>
<rect x="138" y="40" width="34" height="16" rx="4" fill="#f6b93b"/>
<path d="M74 110h110v10a6 6 0 0 1-6 6H80a6 6 0 0 1-6-6zM142 196h74v10a6 6 0 0 1-6 6h-62a6 6 0 0 1-6-6z" fill="#000" opacity=".14"/>"##;

const DICE: &str = r##"
<rect x="96" y="26" width="110" height="110" rx="20" fill="~d" transform="rotate(14 151 81)"/>
<g transform="rotate(14 151 81)" fill="#fff">
<circle cx="124" cy="54" r="9"/>
<circle cx="151" cy="81" r="9"/>
<circle cx="178" cy="108" r="9"/>
</g>
<rect x="32" y="94" width="122" height="122" rx="22" fill="~b"/>
<g fill="#fff">
<circle cx="64" cy="126" r="10"/>
<circle cx="122" cy="126" r="10"/>
<circle cx="93" cy="155" r="10"/>
<circle cx="64" cy="184" r="10"/>
<circle cx="122" cy="184" r="10"/>
</g>
<circle cx="196" cy="162" r="17" fill="~a"/>
<path d="M180 216q0-40 16-40t16 40z" fill="~a"/>"##;

const BIKE: &str = r##"
<g fill="none" stroke="~k" stroke-width="8">
<circle cx="58" cy="152" r="46"/>
<circle cx="182" cy="152" r="46"/>
</g>
<g fill="none" stroke="#b9c0cc" stroke-width="2">
<path d="M58 106v92M12 152h92M26 120l64 64M90 120l-64 64M182 106v92M136 152h92M150 120l64 64M214 120l-64 64"/>
</g>
<path d="M58 152l32-62h66l-46 62zM90 90l20 62M182 152l-30-82" fill="none" stroke="~b" stroke-width="10" stroke-linejoin="round" stroke-linecap="round"/>
<path d="M84 76l6 14M152 70l-6-16h28" fill="none" stroke="~d" stroke-width="8" stroke-linecap="round" stroke-linejoin="round"/>
<path d="M66 72h38" stroke="~k" stroke-width="11" stroke-linecap="round"/>
<circle cx="110" cy="152" r="13" fill="~a"/>"##;

const TENT: &str = r#"
<path d="M120 40L12 206h216z" fill="~d"/>
<path d="M120 40L12 206h116z" fill="~b"/>
<path d="M122 74l-44 132h92z" fill="~k"/>
<path d="M122 74l-44 132h26q18-60 18-132z" fill="~l"/>
<path d="M120 40V14" stroke="~k" stroke-width="5"/>
<path d="M122 14l32 11-32 11z" fill="~a"/>
<path d="M4 208h232" stroke="~a" stroke-width="7" stroke-linecap="round"/>"#;

const DRYER: &str = r#"
<path d="M108 128l42-4 14 82a13 13 0 0 1-13 15h-14a13 13 0 0 1-13-11z" fill="~d"/>
<path d="M30 56l24-4v96l-24-4z" fill="~k"/>
<path d="M54 52c60-22 110-24 142-6a56 56 0 0 1 0 104c-32 18-82 16-142-2z" fill="~b"/>
<circle cx="172" cy="98" r="36" fill="~d"/>
<circle cx="172" cy="98" r="23" fill="~k"/>
<circle cx="172" cy="98" r="9" fill="~a"/>
<rect x="126" y="160" width="13" height="30" rx="6" fill="~a" transform="rotate(-8 132 175)"/>
<path d="M4 76h14M0 100h18M4 124h14" stroke="~a" stroke-width="6" stroke-linecap="round"/>"#;

const BOTTLE: &str = r##"
<path d="M110 44V26h46l10 10h-30v8z" fill="~k"/>
<rect x="98" y="42" width="44" height="24" rx="5" fill="~k"/>
<path d="M88 66h64a28 28 0 0 1 28 28v112a14 14 0 0 1-14 14H74a14 14 0 0 1-14-14V94a28 28 0 0 1 28-28z" fill="~b"/>
<path d="M150 66h2a28 28 0 0 1 28 28v112a14 14 0 0 1-14 14h-16z" fill="~d"/>
<rect x="74" y="112" width="92" height="74" rx="9" fill="#fff"/>
<path d="M120 124c26 14 26 40 0 52c-26-12-26-38 0-52z" fill="~a"/>
<path d="M120 134v36" stroke="#fff" stroke-width="4"/>"##;

const TYRE: &str = r##"
<circle cx="120" cy="120" r="104" fill="~k"/>
<circle cx="120" cy="120" r="98" fill="none" stroke="#596070" stroke-width="9" stroke-dasharray="13 9"/>
<circle cx="120" cy="120" r="66" fill="#d4d9e2"/>
<circle cx="120" cy="120" r="57" fill="~b"/>
<path d="M120 66v108M69 103l102 34M88 164l64-88M152 164L88 76M171 103L69 137" stroke="#e9ecf2" stroke-width="13"/>
<circle cx="120" cy="120" r="21" fill="~a"/>
<circle cx="120" cy="120" r="9" fill="#fff"/>"##;

const DASHCAM: &str = r##"
<path d="M96 18h48v30l-12 24h-24L96 48z" fill="~d"/>
<rect x="82" y="10" width="76" height="14" rx="7" fill="~k"/>
<rect x="16" y="66" width="208" height="126" rx="26" fill="~d"/>
<rect x="16" y="62" width="208" height="124" rx="26" fill="~b"/>
<circle cx="150" cy="124" r="50" fill="~l"/>
<circle cx="150" cy="124" r="42" fill="~k"/>
<circle cx="150" cy="124" r="25" fill="~a"/>
<circle cx="150" cy="124" r="12" fill="~k"/>
<circle cx="139" cy="113" r="7" fill="#fff" opacity=".8"/>
<circle cx="52" cy="96" r="8" fill="#ef4444"/>
<path d="M44 128h40M44 144h40M44 160h26" stroke="~l" stroke-width="6" stroke-linecap="round"/>"##;

const OIL: &str = r##"
<path d="M58 26h44v26H58z" fill="~a"/>
<path d="M48 52h64l20 22h52a16 16 0 0 1 16 16v120a12 12 0 0 1-12 12H52a12 12 0 0 1-12-12V60a8 8 0 0 1 8-8z" fill="~b"/>
<path d="M176 74h8a16 16 0 0 1 16 16v120a12 12 0 0 1-12 12h-12z" fill="~d"/>
<path d="M138 94h34v52h-12v-34h-22z" fill="~k"/>
<rect x="54" y="112" width="76" height="92" rx="8" fill="#fff"/>
<path d="M92 124c18 26 26 36 26 48a26 26 0 0 1-52 0c0-12 8-22 26-48z" fill="~a"/>
<path d="M80 172a12 12 0 0 0 12 12" fill="none" stroke="#fff" stroke-width="5" stroke-linecap="round"/>"##;

const PAW: &str = r##"
<path d="M56 30h128l-8 18h-112z" fill="~d"/>
<path d="M64 48h112c18 54 24 112 16 172H48c-8-60-2-118 16-172z" fill="~b"/>
<path d="M156 48h20c18 54 24 112 16 172h-24c8-60 4-118-12-172z" fill="~d"/>
<circle cx="116" cy="134" r="52" fill="#fff"/>
<g fill="~a">
<ellipse cx="92" cy="122" rx="9" ry="12"/>
<ellipse cx="108" cy="106" rx="9" ry="12"/>
<ellipse cx="128" cy="106" rx="9" ry="12"/>
<ellipse cx="143" cy="123" rx="9" ry="12"/>
<path d="M118 130c14 0 28 16 24 28s-16 6-24 6-20 6-24-6 10-28 24-28z"/>
</g>
<path d="M64 48h112" stroke="~k" stroke-width="5"/>"##;
