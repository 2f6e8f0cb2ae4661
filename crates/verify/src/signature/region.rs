//! Where elements lie, in words: `rows 8 to 15 of every token`.

/// A run of equal distances along one dimension.
fn span(name: &str, values: &[usize], size: usize) -> String {
    let (first, last) = (values[0], values[values.len() - 1]);
    if values.len() == size {
        format!("every {name}")
    } else if values.len() == 1 {
        format!("{name} {first}")
    } else if last - first + 1 == values.len() {
        format!("{name}s {first} to {last}")
    } else {
        let step = values[1] - values[0];
        let regular = values.windows(2).all(|pair| pair[1] - pair[0] == step);
        if regular && values.len() > 2 {
            format!("every {name} from {first} to {last} in steps of {step}")
        } else {
            format!("{} {name}s ({first} to {last})", values.len())
        }
    }
}

/// The distinct indices along each dimension, in order.
fn distinct(indices: &[usize], sizes: &[usize; 4], dimension: usize) -> Vec<usize> {
    let inner: usize = sizes[..dimension].iter().product();
    let mut values: Vec<usize> = indices.iter().map(|index| index / inner.max(1) % sizes[dimension].max(1)).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Names the elements `indices`, which are not empty, of a tensor of these sizes. `axes` names what its dimensions
/// count.
pub(super) fn region(indices: &[usize], sizes: &[usize; 4], axes: &[&'static str]) -> String {
    if indices.is_empty() {
        return "no element".to_owned();
    }
    if indices.len() == sizes.iter().product::<usize>() {
        return "the whole result".to_owned();
    }
    let spans: Vec<Vec<usize>> = (0..4).map(|dimension| distinct(indices, sizes, dimension)).collect();
    let box_size: usize = spans.iter().map(Vec::len).product();
    let names = axes.iter().zip(spans.iter().zip(sizes)).filter(|(_, (_, size))| **size > 1);
    let text: Vec<String> = names.map(|(name, (values, size))| span(name, values, *size)).collect();
    let text = text.join(" of ");
    let text = if text.is_empty() { "the element".to_owned() } else { text };
    if box_size == indices.len() {
        text
    } else {
        format!("{} among {text}", trueup_formats::counted(indices.len(), "element"))
    }
}

#[cfg(test)]
mod tests {
    use super::region;

    #[test]
    fn elements_are_named_by_the_ranges_they_fill() {
        let (sizes, axes) = ([10, 4, 1, 1], ["row", "token"]);
        let row: Vec<usize> = (0..4).map(|token| token * 10 + 9).collect();
        let rows: Vec<usize> = (0..4).flat_map(|token| (2..5).map(move |row| token * 10 + row)).collect();
        let token: Vec<usize> = (10..20).collect();
        let all: Vec<usize> = (0..40).collect();
        let even: Vec<usize> = (0..5).map(|row| 2 * row).collect();
        let cases: [(&[usize], &str); 7] = [
            (&row, "row 9 of every token"),
            (&rows, "rows 2 to 4 of every token"),
            (&token, "every row of token 1"),
            (&all, "the whole result"),
            (&[25], "row 5 of token 2"),
            (&even, "every row from 0 to 8 in steps of 2 of token 0"),
            (&[0, 11, 22], "3 elements among rows 0 to 2 of tokens 0 to 2"),
        ];
        for (indices, expected) in cases {
            assert_eq!(region(indices, &sizes, &axes), expected);
        }
    }
}
