//! Plots of what was measured, as SVG: on white, so that they can be read on any page.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::Result;
use super::axis::{Axis, text_of};

/// The variable that names the folder for plots; without it none are written.
const FOLDER: &str = "VITRINA_BENCH_PLOTS";

/// The colours of what is compared: told apart in print and by most of those who see few colours.
const COLOURS: [&str; 4] = ["#0b62c4", "#d1600a", "#2c8a3d", "#8a3ffc"];
/// The colour of what something is beside.
const PALE: &str = "#8b8f96";
/// Of text …
const INK: &str = "#1f2328";
/// … and of the lines of a grid.
const GRID: &str = "#d8dce1";

/// The edge around everything, in the units of the plot.
const EDGE: f64 = 20.0;
/// Room for title and legend.
const TOP: f64 = 84.0;
/// Room for the axis below a panel.
const BOTTOM: f64 = 52.0;
/// Room for the names of rows.
const NAMES: f64 = 270.0;
/// The height of a row.
const ROW: f64 = 30.0;
/// The width of a panel of dots …
const DOTS_WIDTH: f64 = 400.0;
/// … and the room at its ends for the figures beside the outermost dots.
const SIDE: f64 = 62.0;
/// The width and the height of a panel of lines …
const LINES_SIZE: (f64, f64) = (400.0, 260.0);
/// … the room on its left for the axis …
const LEFT: f64 = 76.0;
/// … and on its right for the figure of the last point.
const RIGHT: f64 = 44.0;
/// Room above a panel of lines for its title and legend.
const HEAD: f64 = 76.0;
/// The least distance between the figures of points that lie one above the other.
const APART: f64 = 14.0;

/// Rows of dots: two for each name in each panel.
pub(super) struct Dots {
    pub(super) title: String,
    pub(super) names: Vec<String>,
    /// What the first and the second dot of a row are.
    pub(super) kinds: [&'static str; 2],
    /// For each panel what its axis shows, and the figures of each row.
    pub(super) panels: [(&'static str, Vec<[f64; 2]>); 2],
}

/// A panel of lines.
pub(super) struct Panel {
    pub(super) title: String,
    /// What the axes show.
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    /// Whether the upright axis is logarithmic; the other one is.
    pub(super) is_log: bool,
    /// The points that all lines have …
    pub(super) at: Vec<f64>,
    /// … and the name and the figures of each line.
    pub(super) lines: Vec<(String, Vec<f64>)>,
}

/// Writes a plot of a section, if it is said where.
pub(super) fn write(section: &str, store: &str, svg: &str) -> Result<()> {
    let Ok(folder) = std::env::var(FOLDER) else { return Ok(()) };
    let which = if store.starts_with("cassandra") { "-cassandra" } else { "" };
    let path = Path::new(&folder).join(format!("performance-{section}{which}.svg"));
    fs::create_dir_all(&folder)?;
    fs::write(&path, svg).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("Plotted: {}\n", path.display());
    Ok(())
}

/// An SVG that is being drawn.
struct Canvas(String);

impl Canvas {
    fn new(width: f64, height: f64, title: &str) -> Self {
        let mut canvas = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"system-ui, sans-serif\" \
             font-size=\"12\" role=\"img\">\n<title>{0}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
            escaped(title)
        ));
        canvas.text((EDGE, EDGE + 12.0), "start", "font-size=\"17\" font-weight=\"600\"", title);
        canvas
    }

    /// Draws; writing to a string cannot fail.
    fn draw(&mut self, shape: std::fmt::Arguments<'_>) {
        let _ = self.0.write_fmt(shape);
        self.0.push('\n');
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, style: &str, text: &str) {
        let fill = if style.contains("fill=") { String::new() } else { format!(" fill=\"{INK}\"") };
        let text = escaped(text);
        self.draw(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{fill} {style}>{text}</text>"
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.draw(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" \
             stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        ));
    }

    fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        self.draw(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\"/>"));
    }

    /// A figure beside a dot.
    fn figure(&mut self, at: (f64, f64), anchor: &str, colour: &str, figure: f64) {
        // With a white edge, for where it lies on a line.
        let style = format!(
            "fill=\"{colour}\" font-size=\"11\" stroke=\"#ffffff\" stroke-width=\"3\" \
             paint-order=\"stroke\""
        );
        self.text(at, anchor, &style, &text_of(figure));
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A count as a length; there are few of anything here.
fn length(count: usize) -> f64 {
    super::figures::float(count as u64)
}

/// Draws rows of dots in panels side by side.
pub(super) fn dots(dots: &Dots) -> String {
    let bottom = TOP + ROW * length(dots.names.len());
    let panel = DOTS_WIDTH + 2.0 * SIDE;
    let width = 2.0 * EDGE + NAMES + panel * length(dots.panels.len());
    let mut canvas = Canvas::new(width, bottom + BOTTOM + EDGE, &dots.title);
    let mut x = EDGE + 6.0;
    for (kind, colour) in dots.kinds.into_iter().zip([COLOURS[0], PALE]) {
        canvas.dot((x, EDGE + 34.0), colour);
        canvas.text((x + 10.0, EDGE + 38.0), "start", "", kind);
        x += 110.0;
    }
    for (row, name) in dots.names.iter().enumerate() {
        let y = TOP + ROW * (length(row) + 0.5) + 4.0;
        canvas.text((EDGE + NAMES - 8.0, y), "end", "", name);
    }
    for (place, (label, pairs)) in dots.panels.iter().enumerate() {
        let left = EDGE + NAMES + panel * length(place) + SIDE;
        let figures: Vec<f64> = pairs.iter().flatten().copied().collect();
        let axis = Axis::new(&figures, true, (left, left + DOTS_WIDTH));
        for tick in axis.ticks() {
            let x = axis.at(tick);
            canvas.line((x, TOP), (x, bottom), GRID, 1.0);
            canvas.text((x, bottom + 18.0), "middle", "", &text_of(tick));
        }
        canvas.text(
            (left + DOTS_WIDTH / 2.0, bottom + 40.0),
            "middle",
            "font-weight=\"600\"",
            label,
        );
        for (row, [own, beside]) in pairs.iter().enumerate() {
            let y = TOP + ROW * (length(row) + 0.5);
            let (here, there) = (axis.at(*own), axis.at(*beside));
            canvas.line((here, y), (there, y), PALE, 2.0);
            canvas.dot((there, y), PALE);
            canvas.dot((here, y), COLOURS[0]);
            // Each figure on the outer side, where the other dot is not.
            let sides = |right: bool| if right { (9.0, "start") } else { (-9.0, "end") };
            let (own_side, other_side) = (sides(own >= beside), sides(own < beside));
            canvas.figure((here + own_side.0, y + 4.0), own_side.1, COLOURS[0], *own);
            canvas.figure((there + other_side.0, y + 4.0), other_side.1, "#5b6069", *beside);
        }
    }
    canvas.end()
}

/// Draws panels of lines, two in a row.
pub(super) fn lines(title: &str, panels: &[Panel]) -> String {
    let (width, height) = LINES_SIZE;
    let (wide, high) = (LEFT + width + RIGHT, HEAD + height + BOTTOM);
    let rows = length(panels.len().div_ceil(2));
    let columns = length(panels.len().min(2));
    let mut canvas =
        Canvas::new(2.0 * EDGE + wide * columns, 2.0 * EDGE + 20.0 + high * rows, title);
    for (place, panel) in panels.iter().enumerate() {
        let left = EDGE + wide * length(place % 2) + LEFT;
        let top = EDGE + 20.0 + high * length(place / 2) + HEAD;
        draw_lines(&mut canvas, panel, (left, top));
    }
    canvas.end()
}

fn draw_lines(canvas: &mut Canvas, panel: &Panel, (left, top): (f64, f64)) {
    let (width, height) = LINES_SIZE;
    let (right, bottom) = (left + width, top + height);
    let figures: Vec<f64> = panel.lines.iter().flat_map(|(_, line)| line).copied().collect();
    let (x, y) = (
        Axis::new(&panel.at, true, (left + APART, right - APART)),
        Axis::new(&figures, panel.is_log, (bottom, top)),
    );
    canvas.text((left, top - 46.0), "start", "font-size=\"14\" font-weight=\"600\"", &panel.title);
    for (line, (name, _)) in panel.lines.iter().enumerate() {
        let at = (left + 4.0 + 210.0 * length(line % 2), top - 30.0 + 15.0 * length(line / 2));
        canvas.dot(at, COLOURS[line % COLOURS.len()]);
        canvas.text((at.0 + 10.0, at.1 + 4.0), "start", "", name);
    }
    for tick in y.ticks() {
        canvas.line((left, y.at(tick)), (right, y.at(tick)), GRID, 1.0);
        canvas.text((left - 8.0, y.at(tick) + 4.0), "end", "", &text_of(tick));
    }
    for at in &panel.at {
        canvas.line((x.at(*at), bottom), (x.at(*at), bottom + 5.0), INK, 1.0);
        canvas.text((x.at(*at), bottom + 18.0), "middle", "", &text_of(*at));
    }
    canvas.line((left, bottom), (right, bottom), INK, 1.0);
    canvas.text((left + width / 2.0, bottom + 38.0), "middle", "font-weight=\"600\"", panel.x);
    let (middle, side) = (top + height / 2.0, left - 58.0);
    let turned = format!("font-weight=\"600\" transform=\"rotate(-90 {side:.1} {middle:.1})\"");
    canvas.text((side, middle), "middle", &turned, panel.y);
    for (line, (_, figures)) in panel.lines.iter().enumerate() {
        let colour = COLOURS[line % COLOURS.len()];
        let points: Vec<_> =
            panel.at.iter().zip(figures).map(|(at, figure)| (x.at(*at), y.at(*figure))).collect();
        for pair in points.windows(2) {
            canvas.line(pair[0], pair[1], colour, 2.0);
        }
        for point in points {
            canvas.dot(point, colour);
        }
    }
    for (place, at) in panel.at.iter().enumerate() {
        let figures = panel.lines.iter().map(|(_, figures)| figures.get(place).copied());
        let mut column: Vec<(f64, usize, f64)> = figures
            .enumerate()
            .filter_map(|(line, figure)| Some((y.at(figure?), line, figure?)))
            .collect();
        column.sort_by(|a, b| b.0.total_cmp(&a.0));
        // The lowest of several below its point; the others above theirs, from the bottom up, each as
        // far above the one below as it needs.
        let mut below = f64::INFINITY;
        for (order, (height, line, figure)) in column.iter().enumerate() {
            let is_lowest = order == 0 && column.len() > 1;
            let wanted = if is_lowest { height + 18.0 } else { (height - 9.0).min(below - APART) };
            let colour = COLOURS[line % COLOURS.len()];
            canvas.figure((x.at(*at), wanted), "middle", colour, *figure);
            below = if is_lowest { *height } else { wanted };
        }
    }
}
