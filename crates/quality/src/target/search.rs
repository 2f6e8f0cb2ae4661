//! Searches for the limit of the predicted divergence at which the measured divergence is slightly below its limit.

/// A search over limits of the predicted divergence.
pub(super) struct Search {
    /// The smallest divergence that can be predicted.
    floor: f64,
    /// The largest limit at which the measured divergence was low enough.
    low: Option<f64>,
    /// The smallest limit at which the measured divergence was too high.
    high: Option<f64>,
    limit: f64,
}

impl Search {
    /// Starts as if predictions were exact.
    pub fn new(floor: f64, limit: f64) -> Search {
        Search { floor, low: None, high: None, limit: limit.max(floor) }
    }

    /// The limit to try next.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Chooses the next limit after `found` was measured at the current one; at most `most` is allowed.
    pub fn learn(&mut self, found: f64, most: f64) {
        let above_floor = self.limit - self.floor;
        let ratio = (most / found.max(1e-9)).clamp(0.1, 10.0);
        if found <= most {
            self.low = Some(self.low.map_or(self.limit, |low| low.max(self.limit)));
        } else {
            self.high = Some(self.high.map_or(self.limit, |high| high.min(self.limit)));
        }
        // Slightly below the proportional limit, so that the next measurement is low enough.
        let proportional = self.floor + above_floor * if found <= most { ratio * 0.995 } else { ratio * 0.97 };
        // At the floor, proportion gives no step, so the prediction of the difference counts as exact.
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

    /// The divergence exceeds the limit as soon as the prediction is slightly above the floor.
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
