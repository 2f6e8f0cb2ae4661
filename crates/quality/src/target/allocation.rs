//! Chooses one option of each group, with the smallest total cost under a budget: the multiple-choice knapsack problem.
//!
//! ```text
//! options ─ relaxed: convex hulls, the best ratio first ─▶ a multiplier, and a feasible allocation
//!         ─ exact: group by group, partial sums that can still be better ─▶ the best allocation
//! ```
//!
//! The multiplier gives a lower bound of the total cost for each partial sum. Partial sums whose bound is not below the
//! cost of the feasible allocation are dropped, and so are sums that are heavier and more expensive than another one.
//! If too many remain, only the most promising ones are kept; the result can then be slightly worse than the best one.

/// An option of a group.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Choice {
    /// Share of the budget that the option uses; at least 0.
    pub weight: f64,
    /// The quantity to minimize.
    pub cost: f64,
}

/// Maximum number of partial sums that are kept after a group.
const SUMS_MAX: usize = 10_000;

/// For each group, the number of its option in the allocation with the smallest total cost within the budget. `None` if
/// no allocation is within the budget. Every group has at least one option.
pub fn allocate(groups: &[Vec<Choice>], budget: f64) -> Option<Vec<usize>> {
    let undominated: Vec<Vec<usize>> = groups.iter().map(|options| undominated(options)).collect();
    let lightest: Vec<usize> = undominated.iter().map(|options| options.first().copied()).collect::<Option<_>>()?;
    if weight(groups, &lightest) > budget {
        return None;
    }
    let (greedy, multiplier) = relaxed(groups, &undominated, lightest, budget);
    let filled = filled(groups, greedy, budget);
    Some(exact(groups, &undominated, budget, multiplier, &filled).unwrap_or(filled))
}

/// The sum of the weights.
fn weight(groups: &[Vec<Choice>], chosen: &[usize]) -> f64 {
    groups.iter().zip(chosen).map(|(options, option)| options[*option].weight).sum()
}

/// The sum of the costs.
pub fn cost(groups: &[Vec<Choice>], chosen: &[usize]) -> f64 {
    groups.iter().zip(chosen).map(|(options, option)| options[*option].cost).sum()
}

/// The options that cost less than all lighter ones, lightest first.
fn undominated(options: &[Choice]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..options.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (options[*a], options[*b]);
        a.weight.total_cmp(&b.weight).then(a.cost.total_cmp(&b.cost))
    });
    let mut kept: Vec<usize> = Vec::new();
    for option in order {
        if kept.last().is_none_or(|last| options[option].cost < options[*last].cost) {
            kept.push(option);
        }
    }
    kept
}

/// The options on the lower convex hull of cost over weight.
fn hull(options: &[Choice], undominated: &[usize]) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for option in undominated {
        while let [.., before, last] = kept.as_slice()
            && gain(options, *before, *last) <= gain(options, *last, *option)
        {
            kept.pop();
        }
        kept.push(*option);
    }
    kept
}

/// Cost that a step to a heavier option saves per unit of weight.
fn gain(options: &[Choice], from: usize, to: usize) -> f64 {
    (options[from].cost - options[to].cost) / (options[to].weight - options[from].weight)
}

/// The allocation after the best steps along the hulls that fit, and the gain of the first step that does not fit.
fn relaxed(groups: &[Vec<Choice>], undominated: &[Vec<usize>], lightest: Vec<usize>, budget: f64) -> (Vec<usize>, f64) {
    let mut steps: Vec<(f64, usize, usize)> = Vec::new();
    for (group, (options, undominated)) in groups.iter().zip(undominated).enumerate() {
        let hull = hull(options, undominated);
        steps.extend(hull.windows(2).map(|pair| (gain(options, pair[0], pair[1]), group, pair[1])));
    }
    // The steps of one group are in the order of their gains.
    steps.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut chosen = lightest;
    let mut left = budget - weight(groups, &chosen);
    for (gain, group, option) in steps {
        let more = groups[group][option].weight - groups[group][chosen[group]].weight;
        if more > left {
            return (chosen, gain);
        }
        left -= more;
        chosen[group] = option;
    }
    (chosen, 0.0)
}

/// The allocation after repeated single changes: always the one that saves most and fits.
fn filled(groups: &[Vec<Choice>], mut chosen: Vec<usize>, budget: f64) -> Vec<usize> {
    loop {
        let left = budget - weight(groups, &chosen);
        let mut best = (0.0, 0, 0);
        for (group, options) in groups.iter().enumerate() {
            let now = options[chosen[group]];
            for (option, choice) in options.iter().enumerate() {
                let saved = now.cost - choice.cost;
                if choice.weight - now.weight <= left && saved > best.0 {
                    best = (saved, group, option);
                }
            }
        }
        if best.0 <= 0.0 {
            return chosen;
        }
        chosen[best.1] = best.2;
    }
}

/// A partial sum over the first groups.
#[derive(Clone, Copy)]
struct Sum {
    weight: f64,
    cost: f64,
    /// The number of the partial sum without the last group.
    before: usize,
    option: usize,
}

/// The best allocation, if it costs less than the known one.
fn exact(
    groups: &[Vec<Choice>],
    undominated: &[Vec<usize>],
    budget: f64,
    multiplier: f64,
    known: &[usize],
) -> Option<Vec<usize>> {
    let known_cost = cost(groups, known);
    // For each group and all groups after it: the least weight, and the least cost plus `multiplier` times the weight.
    let mut rest = vec![(0.0, 0.0); groups.len() + 1];
    for group in (0..groups.len()).rev() {
        let options = || undominated[group].iter().map(|option| groups[group][*option]);
        let least = |of: &dyn Fn(Choice) -> f64| options().map(of).fold(f64::INFINITY, f64::min);
        let (weight, bound): (f64, f64) = rest[group + 1];
        let priced = least(&|choice| choice.cost + multiplier * choice.weight);
        rest[group] = (weight + least(&|choice| choice.weight), bound + priced);
    }
    // Rounding must not drop a better sum.
    let tolerance = 1e-12 * groups.iter().flatten().map(|choice| choice.cost.abs()).fold(known_cost.abs(), f64::max);
    let mut stages: Vec<Vec<Sum>> = vec![vec![Sum { weight: 0.0, cost: 0.0, before: 0, option: 0 }]];
    for group in 0..groups.len() {
        let (rest_weight, rest_bound) = rest[group + 1];
        let bound = |sum: &Sum| sum.cost + rest_bound + multiplier * (sum.weight - budget);
        let mut sums: Vec<Sum> = Vec::new();
        for (before, sum) in stages[group].iter().enumerate() {
            for option in &undominated[group] {
                let choice = groups[group][*option];
                let (weight, cost) = (sum.weight + choice.weight, sum.cost + choice.cost);
                let next = Sum { weight, cost, before, option: *option };
                if weight + rest_weight <= budget && bound(&next) < known_cost + tolerance {
                    sums.push(next);
                }
            }
        }
        sums.sort_by(|a, b| a.weight.total_cmp(&b.weight).then(a.cost.total_cmp(&b.cost)));
        let mut least = f64::INFINITY;
        sums.retain(|sum| {
            let is_cheaper = sum.cost < least;
            least = least.min(sum.cost);
            is_cheaper
        });
        if sums.len() > SUMS_MAX {
            sums.sort_by(|a, b| bound(a).total_cmp(&bound(b)));
            sums.truncate(SUMS_MAX);
        }
        stages.push(sums);
    }
    let last = stages.last()?;
    let best = (0..last.len()).min_by(|a, b| last[*a].cost.total_cmp(&last[*b].cost))?;
    if last[best].cost >= known_cost {
        return None;
    }
    let (mut chosen, mut place) = (vec![0; groups.len()], best);
    for group in (0..groups.len()).rev() {
        let sum = stages[group + 1][place];
        (chosen[group], place) = (sum.option, sum.before);
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudorandom numbers.
    struct Noise(u32);

    impl Noise {
        fn below(&mut self, most: u32) -> u32 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.0 >> 8) % most
        }
    }

    /// The least cost of all allocations within the budget.
    fn brute_force(groups: &[Vec<Choice>], budget: f64) -> Option<f64> {
        let Some((first, others)) = groups.split_first() else { return (budget >= 0.0).then_some(0.0) };
        let best = first.iter().filter_map(|choice| Some(choice.cost + brute_force(others, budget - choice.weight)?));
        best.min_by(f64::total_cmp)
    }

    #[test]
    fn small_allocations_are_the_best_ones() {
        let mut noise = Noise(7);
        for case in 0..400 {
            let count = 1 + noise.below(6) as usize;
            let mut option = || Choice { weight: f64::from(noise.below(40)), cost: f64::from(noise.below(100)) };
            let groups: Vec<Vec<Choice>> = (0..count).map(|_| (0..4).map(|_| option()).collect()).collect();
            let budget = f64::from(noise.below(40 * count as u32));
            let expected = brute_force(&groups, budget);
            let found = allocate(&groups, budget);
            assert_eq!(found.as_ref().map(|chosen| cost(&groups, chosen)), expected, "case {case}");
            assert!(found.is_none_or(|chosen| weight(&groups, &chosen) <= budget), "case {case}");
        }
    }

    /// Costs that fall with the weight like errors of types: the best allocation of 200 groups is close to its bound.
    #[test]
    fn large_allocations_fill_the_budget() {
        let mut noise = Noise(3);
        let mut group = || {
            let (size, cost) = (f64::from(100 + noise.below(900)), f64::from(1 + noise.below(1000)));
            let option = |bits: f64| Choice { weight: (size * bits).round(), cost: cost * 0.25f64.powf(bits) };
            [2.625, 3.4375, 4.25, 4.5, 5.5, 6.5625, 8.5].map(option).to_vec()
        };
        let groups: Vec<Vec<Choice>> = (0..200).map(|_| group()).collect();
        let budget = groups.iter().map(|options| options[3].weight).sum::<f64>();
        let chosen = allocate(&groups, budget).unwrap();
        let used = weight(&groups, &chosen);
        assert!(used <= budget && used > 0.9999 * budget, "{used} of {budget}");
        let uniform = cost(&groups, &[3; 200]);
        assert!(cost(&groups, &chosen) < 0.8 * uniform);
    }

    #[test]
    fn a_budget_that_is_too_small_has_no_allocation() {
        let groups = [vec![Choice { weight: 2.0, cost: 1.0 }], vec![Choice { weight: 3.0, cost: 1.0 }]];
        assert_eq!((allocate(&groups, 4.9), allocate(&groups, 5.0)), (None, Some(vec![0, 0])));
        assert_eq!(allocate(&[], 0.0), Some(vec![]));
    }
}
