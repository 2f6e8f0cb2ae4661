//! The search for the limit of the predicted divergence with which the measured one is close below its limit.

/// A search. Limits are those of the prediction.
pub(super) struct Search {
    /// The least that can be predicted.
    floor: f64,
    /// The greatest limit with which the measured divergence was low enough.
    low: Option<f64>,
    /// The least limit with which it was too high.
    high: Option<f64>,
    limit: f64,
}

impl Search {
    /// Begins as if predictions were exact.
    pub fn new(floor: f64, limit: f64) -> Search {
        Search { floor, low: None, high: None, limit: limit.max(floor) }
    }

    /// The limit to try.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Goes on after `found` was measured with the limit, and at most `most` is allowed.
    pub fn learn(&mut self, found: f64, most: f64) {
        let above_floor = self.limit - self.floor;
        let ratio = (most / found.max(1e-9)).clamp(0.1, 10.0);
        if found <= most {
            self.low = Some(self.low.map_or(self.limit, |low| low.max(self.limit)));
        } else {
            self.high = Some(self.high.map_or(self.limit, |high| high.min(self.limit)));
        }
        // A bit below what proportion says, so that the next one is low enough.
        let proportional = self.floor + above_floor * if found <= most { ratio * 0.995 } else { ratio * 0.97 };
        // At the floor nothing is proportional: as if the prediction of the difference were exact.
        let is_at_floor = found <= most && above_floor < 0.05 * (most - found);
        let next = if is_at_floor { self.limit + (most - found) } else { proportional };
        let is_between = self.low.is_none_or(|low| next > low) && self.high.is_none_or(|high| next < high);
        self.limit = match (self.low, self.high) {
            _ if is_between => next,
            (Some(low), Some(high)) => (low + high) / 2.0,
            (Some(low), None) => self.floor + (low - self.floor) * 1.5,
            (None, Some(high)) => self.floor + (high - self.floor) * 0.5,
            (None, None) => next,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The divergence is larger than the limit as soon as the prediction is a bit above the floor.
    #[test]
    fn searches_leave_a_floor_with_a_small_divergence() {
        for most in [1e-5, 5e-4, 2e-3] {
            let measured = |x: f64| if x <= -0.02 { 1e-9 } else { 1.8 * (x + 0.02) };
            let mut search = Search::new(-0.02, most - 0.03);
            let mut best: f64 = 0.0;
            for _ in 0..10 {
                let found = measured(search.limit());
                if found <= most {
                    best = best.max(found);
                }
                search.learn(found, most);
            }
            assert!(best > 0.9 * most && best <= most, "{best} for {most}");
        }
    }

    /// Measured divergences are not proportional to the prediction.
    #[test]
    fn searches_come_close_to_the_limit_from_below() {
        for measured in [|x: f64| 0.01 + 1.7 * x, |x: f64| 0.02 + 0.4 * x + 3.0 * x * x, |x: f64| (0.9 * x).max(0.0)] {
            let most = 0.1;
            let mut search = Search::new(-0.001, most);
            let mut best = f64::NEG_INFINITY;
            for _ in 0..10 {
                let found = measured(search.limit());
                if found <= most {
                    best = best.max(found);
                }
                search.learn(found, most);
            }
            assert!(best > 0.97 * most && best <= most, "{best}");
        }
    }
}
