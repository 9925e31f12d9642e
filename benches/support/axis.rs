//! The axis of a plot: where a figure lies, and which figures are written along it.

use super::figures::thousands;

/// Steps of an axis that is not logarithmic: about so many.
const STEPS: f64 = 5.0;
/// Figures below this are written with a digit after the point.
const FINE: f64 = 20.0;
/// Figures below this, with two.
const FINER: f64 = 1.0;

/// An axis between two places.
pub(super) struct Axis {
    is_log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis on which all figures have their place. One that is not logarithmic begins with 0.
    pub(super) fn new(figures: &[f64], is_log: bool, (from, to): (f64, f64)) -> Self {
        let sound = || figures.iter().copied().filter(|figure| figure.is_finite() && *figure > 0.0);
        let least = sound().fold(f64::INFINITY, f64::min).min(sound().fold(0.0, f64::max));
        let most = sound().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let (low, high) = if is_log {
            let low = 10_f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
            (low, 10_f64.powf(most.log10().ceil()).max(low * 10.0))
        } else {
            let step = step_for(most);
            (0.0, (most / step).ceil() * step)
        };
        Self { is_log, low, high, from, to }
    }

    /// Where a figure lies.
    pub(super) fn at(&self, figure: f64) -> f64 {
        let share = if self.is_log {
            let figure = figure.max(self.low);
            (figure.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            figure / self.high
        };
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    /// The figures that are written along it.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let step = step_for(self.high);
        let mut ticks = vec![self.low];
        let mut last = self.low;
        // The least bit more, for what is lost in adding.
        while last < self.high * 0.999 {
            last = if self.is_log { last * 10.0 } else { last + step };
            ticks.push(last);
        }
        ticks
    }
}

/// A round step, about a fifth of the whole.
fn step_for(most: f64) -> f64 {
    let rough = most / STEPS;
    let power = 10_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= rough);
    times.unwrap_or(10.0) * power
}

/// A figure as short as it can be read.
pub(super) fn text_of(figure: f64) -> String {
    let is_whole = (figure - figure.round()).abs() < f64::EPSILON * figure.abs().max(1.0);
    if is_whole || figure >= FINE {
        thousands(figure)
    } else if figure >= FINER {
        format!("{figure:.1}")
    } else {
        format!("{figure:.2}")
    }
}
