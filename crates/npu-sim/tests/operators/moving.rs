//! Moving elements: bits stay as they are; indices that lead nowhere end in 507015.

use crate::card::*;

fn counted(card: &Card, ty: i32, shape: &[i64]) -> (Placed, Vec<f64>) {
    let values: Vec<f64> = (0..shape.iter().product::<i64>()).map(|at| (at % 120) as f64).collect();
    (card.numbers(ty, shape, &values), values)
}

#[test]
fn copies_and_casts() {
    let card = Card::open("{}");
    let (x, values) = counted(&card, F32, &[4, 6]);
    let out = card.blank(F16, &[4, 6]);
    card.done("Cast", (x.handle, F16, out.handle));
    assert_eq!(card.values(out), values);
    card.refused("Cast", (x.handle, F32, out.handle), 161002, "out is f16, f32 is expected");
    let turned = card.view(x.data, F32, &[6, 4], &[1, 6], 0, 2);
    let packed_out = card.blank(F32, &[6, 4]);
    card.done("InplaceCopy", (packed_out.handle, turned));
    assert_eq!(card.values(packed_out)[1], 6.0);
    let permuted = card.blank(F32, &[6, 4]);
    card.done("Permute", (x.handle, card.ints(&[1, 0]), permuted.handle));
    assert_eq!(card.values(permuted), card.values(packed_out));
    card.refused("Permute", (x.handle, card.ints(&[1, 1]), permuted.handle), 161002, "refers to an axis twice");
    card.refused("Permute", (x.handle, card.ints(&[1]), permuted.handle), 161002, "refers to 1 axes of 2");
    let fractions = card.numbers(F32, &[4], &[1.9, -1.9, f64::NAN, 1e9]);
    let whole = card.blank(I32, &[4]);
    card.done("Cast", (fractions.handle, I32, whole.handle));
    assert_eq!(card.values(whole), [1.0, -1.0, 0.0, 1e9]);
}

#[test]
fn joining_and_cutting() {
    let card = Card::open("{}");
    let ((a, x), (b, y)) = (counted(&card, F16, &[2, 3]), counted(&card, F16, &[2, 2]));
    let out = card.blank(F16, &[2, 5]);
    card.done("Cat", (card.list(&[a.handle, b.handle]), 1i64, out.handle));
    assert_eq!(card.values(out), [x[0], x[1], x[2], y[0], y[1], x[3], x[4], x[5], y[2], y[3]]);
    let (c, _) = counted(&card, F16, &[3, 2]);
    let wrong = card.list(&[card.view(a.data, F16, &[2, 3], &[3, 1], 0, 2), c.handle]);
    card.refused("Cat", (wrong, 1i64, out.handle), 161002, "cannot be concatenated along axis 1");
    let part = card.blank(F16, &[2, 2]);
    card.done("Slice", (out.handle, 1i64, 1i64, 5i64, 2i64, part.handle));
    assert_eq!(card.values(part), [x[1], y[0], x[4], y[2]]);
    let column = card.blank(F16, &[2, 1]);
    card.done("Slice", (out.handle, 1i64, 1i64, 5i64, 1i64 << 62, column.handle));
    assert_eq!(card.values(column), [x[1], x[4]]);
    card.refused("Slice", (out.handle, 1i64, 1i64, 5i64, 0i64, part.handle), 161002, "step is 0");
    let (left, right) = (card.blank(F16, &[2, 3]), card.blank(F16, &[2, 2]));
    let (l, r) = (left, right);
    card.done("SplitTensor", (out.handle, 3u64, 1i64, card.list(&[left.handle, right.handle])));
    assert_eq!((card.values(l), card.values(r)), (x, y));
}

#[test]
fn repeating_rolling_padding() {
    let card = Card::open("{}");
    let (x, v) = counted(&card, F32, &[2, 3]);
    let out = card.blank(F32, &[2, 2, 6]);
    card.done("Repeat", (x.handle, card.ints(&[2, 1, 2]), out.handle));
    assert_eq!(card.values(out)[..6], [v[0], v[1], v[2], v[0], v[1], v[2]]);
    let deep = card.blank(F32, &[1, 1, 1, 1, 1]);
    let all = card.blank(F32, &[2, 2, 2, 2, 2]);
    card.refused(
        "Repeat",
        (deep.handle, card.ints(&[2, 2, 2, 2, 2]), all.handle),
        161002,
        "the first axis and more than three others repeat",
    );
    let long = card.blank(F32, &[1, 4, 6]);
    card.refused("Repeat", (x.handle, card.ints(&[2, 2]), long.handle), 161002, "out has the shape [1, 4, 6]");
    let twice = card.blank(F32, &[2, 6]);
    card.done("RepeatInterleaveIntWithDim", (x.handle, 2i64, 1i64, 6i64, twice.handle));
    assert_eq!(card.values(twice)[..6], [v[0], v[0], v[1], v[1], v[2], v[2]]);
    card.refused("RepeatInterleaveIntWithDim", (x.handle, 2i64, 1i64, 7i64, twice.handle), 161002, "outputSize is 7");
    let same = card.blank(F32, &[2, 3]);
    card.done("Roll", (x.handle, card.ints(&[1]), card.ints(&[1]), same.handle));
    assert_eq!(card.values(same), [v[2], v[0], v[1], v[5], v[3], v[4]]);
    let padded = card.blank(F32, &[3, 4]);
    card.done("ConstantPadNd", (x.handle, card.ints(&[1, 0, 0, 1]), card.scalar(-5.0), padded.handle));
    assert_eq!(card.values(padded), [-5.0, v[0], v[1], v[2], -5.0, v[3], v[4], v[5], -5.0, -5.0, -5.0, -5.0]);
    card.refused(
        "ConstantPadNd",
        (x.handle, card.ints(&[1]), card.scalar(0.0), padded.handle),
        161002,
        "pad has 1 numbers",
    );
    let mirrored = card.blank(F32, &[2, 6]);
    card.done("ReflectionPad1d", (x.handle, card.ints(&[2, 1]), mirrored.handle));
    assert_eq!(card.values(mirrored)[..6], [v[2], v[1], v[0], v[1], v[2], v[1]]);
    card.refused("ReflectionPad1d", (x.handle, card.ints(&[3, 0]), mirrored.handle), 161002, "below the last size 3");
    card.done("InplaceTriu", (x.handle, 1i64));
    assert_eq!(card.values(x), [0.0, v[1], v[2], 0.0, 0.0, v[5]]);
}

#[test]
fn rows_by_index() {
    let card = Card::open("{}");
    let (table, v) = counted(&card, F16, &[5, 4]);
    let index = card.numbers(I32, &[3], &[4.0, 0.0, 4.0]);
    let out = card.blank(F16, &[3, 4]);
    for name in ["IndexSelect", "GatherV2"] {
        card.done(name, (table.handle, 0i64, index.handle, out.handle));
        assert_eq!(card.values(out), [&v[16..20], &v[0..4], &v[16..20]].concat(), "{name}");
    }
    let columns = card.blank(F16, &[5, 3]);
    card.refused(
        "IndexSelect",
        (table.handle, 2i64, index.handle, columns.handle),
        161002,
        "dim is 2, self has 2 axes",
    );
    let floats = card.blank(F32, &[3]);
    card.refused("IndexSelect", (table.handle, 0i64, floats.handle, out.handle), 161002, "index is f32");
    let cache = card.blank(F16, &[8, 4]);
    let places = card.numbers(I64, &[3], &[7.0, 2.0, 5.0]);
    card.done("InplaceIndexCopy", (cache.handle, 0i64, places.handle, out.handle));
    let found = card.values(cache);
    assert_eq!((&found[28..32], &found[8..12], &found[0..4]), (&v[16..20], &v[0..4], &[1.0; 4][..]));
    card.refused(
        "InplaceIndexCopy",
        (cache.handle, 0i64, index.handle, table.handle),
        161002,
        "source has the shape [5, 4]",
    );
}

#[test]
fn integers_are_put_and_added_as_integers() {
    let card = Card::open("{}");
    let first = || card.numbers(I64, &[1], &[0.0]).handle;
    let odd = (1i64 << 60) + 1;
    let (cache, value) = (card.numbers(I64, &[2], &[5.0, 6.0]), card.tensor(I64, &[1], &odd.to_le_bytes()));
    card.done("IndexPutImpl", (cache.handle, card.list(&[first()]), value.handle, 0u8, 1u8));
    assert_eq!(card.download(cache.data, 8), odd.to_le_bytes());
    let (counts, ten) = (card.numbers(I32, &[2], &[2_147_483_647.0, 7.0]), card.numbers(I32, &[1], &[10.0]));
    card.done("IndexPutImpl", (counts.handle, card.list(&[first()]), ten.handle, 1u8, 1u8));
    assert_eq!(card.values(counts), [-2_147_483_639.0, 7.0]);
    let (small, more, sums) =
        (card.numbers(I8, &[2], &[100.0, 3.0]), card.numbers(I8, &[1], &[50.0]), card.blank(I8, &[2]));
    for (reduce, expected) in [(0i64, 50.0), (1, -106.0), (2, -120.0)] {
        card.done("Scatter", (small.handle, 0i64, first(), more.handle, reduce, sums.handle));
        assert_eq!(card.values(sums), [expected, 3.0], "reduce {reduce}");
    }
    let (rows, added) = (card.numbers(F16, &[2, 2], &[1.0, 2.0, 3.0, 4.0]), card.numbers(F16, &[2], &[0.5, -0.0]));
    card.done("IndexPutImpl", (rows.handle, card.list(&[first()]), added.handle, 1u8, 1u8));
    assert_eq!(card.values(rows), [1.5, 2.0, 3.0, 4.0]);
    card.done("IndexPutImpl", (rows.handle, card.list(&[first()]), added.handle, 0u8, 1u8));
    assert_eq!(card.download(rows.data, 4), encode(F16, &[0.5, -0.0]), "a negative zero stays one");
}

#[test]
fn an_index_out_of_range_traps() {
    let card = Card::open(r#"{"on_finding": "report"}"#);
    let (table, out) = (card.blank(F16, &[5, 4]), card.blank(F16, &[1, 4]));
    let index = card.numbers(I32, &[1], &[5.0]);
    let (code, message) =
        card.run("IndexSelect", (table.handle, 0i64, index.handle, out.handle)).expect_err("it leads nowhere");
    assert_eq!(code, 507015);
    assert!(message.contains("aclnnIndexSelect index contains index 5 at place 0, which is out of 0..5"), "{message}");
}

#[test]
fn ranges_fills_sums_and_orders() {
    let card = Card::open("{}");
    let out = card.blank(F32, &[5]);
    card.done("Arange", (card.scalar(1.0), card.scalar(3.5), card.scalar(0.5), out.handle));
    assert_eq!(card.values(out), [1.0, 1.5, 2.0, 2.5, 3.0]);
    card.refused("Arange", (card.scalar(1.0), card.scalar(3.5), card.scalar(0.0), out.handle), 161002, "step is 0");
    card.refused(
        "Arange",
        (card.scalar(1.0), card.scalar(9.0), card.scalar(0.5), out.handle),
        161002,
        "[16] is expected",
    );
    card.done("InplaceFillScalar", (out.handle, card.scalar(-3.0)));
    assert_eq!(card.values(out), [-3.0; 5]);
    let a = [3.0, -1.0, 7.0, 7.0, 2.0, 0.5];
    let (x, sums, best) = (card.numbers(F32, &[2, 3], &a), card.blank(F32, &[2, 1]), card.blank(I32, &[2]));
    card.done("ReduceSum", (x.handle, card.ints(&[1]), 1u8, F32, sums.handle));
    assert_eq!(card.values(sums), [9.0, 9.5]);
    card.done("Mean", (x.handle, card.ints(&[-1]), 1u8, F32, sums.handle));
    near("mean", &card.values(sums), &[3.0, 9.5 / 3.0], 1e-7);
    card.done("ArgMax", (x.handle, 1i64, 0u8, best.handle));
    assert_eq!(card.values(best), [2.0, 0.0]);
    let order = card.blank(I64, &[2, 3]);
    card.done("Argsort", (x.handle, 1i64, 1u8, order.handle));
    assert_eq!(card.values(order), [2.0, 0.0, 1.0, 0.0, 1.0, 2.0]);
    let (top, places) = (card.blank(F32, &[2, 2]), card.blank(I64, &[2, 2]));
    card.done("Topk", (x.handle, 2i64, 1i64, 1u8, 1u8, top.handle, places.handle));
    assert_eq!((card.values(top), card.values(places)), (vec![7.0, 3.0, 7.0, 2.0], vec![2.0, 0.0, 0.0, 1.0]));
    card.refused("Topk", (x.handle, 4i64, 1i64, 1u8, 1u8, top.handle, places.handle), 161002, "k is 4");
    card.refused(
        "Argsort",
        (x.handle, 1i64, 1u8, card.blank(I32, &[2, 3]).handle),
        161002,
        "out is i32, i64 is expected",
    );
    let running = card.blank(F32, &[2, 3]);
    card.done("Cumsum", (x.handle, 1i64, F32, running.handle));
    assert_eq!(card.values(running), [3.0, 2.0, 9.0, 7.0, 9.0, 9.5]);
}
