//! What networks are made of: norms, softmax, rotary positions, attention, pictures.

use crate::card::*;
use std::{
    ffi::{CString, c_char, c_void},
    ptr::null_mut,
};

#[test]
fn root_mean_square_norm() {
    let card = Card::open("{}");
    let (a, g) = (rounded(F16, &drawn(3 * 40, 1, 2.0)), rounded(F32, &drawn(40, 2, 1.0)));
    let (x, gamma) = (card.numbers(F16, &[3, 40], &a), card.numbers(F32, &[40], &g));
    let (y, rstd) = (card.blank(F16, &[3, 40]), card.blank(F32, &[3, 1]));
    card.done("RmsNorm", (x.handle, gamma.handle, 1e-5f64, y.handle, rstd.handle));
    let roots: Vec<f64> =
        a.chunks(40).map(|row| 1.0 / (row.iter().map(|x| x * x).sum::<f64>() / 40.0 + 1e-5).sqrt()).collect();
    near("rstd", &card.values(rstd), &roots, 1e-6);
    let expected: Vec<f64> = (0..120).map(|at| a[at] * roots[at / 40] * g[at % 40]).collect();
    near("y", &card.values(y), &expected, 6e-4);
    card.refused(
        "RmsNorm",
        (x.handle, gamma.handle, 1e-5f64, y.handle, card.blank(F16, &[3, 1]).handle),
        161002,
        "rstdOut is f16, f32 is expected",
    );
    card.refused(
        "RmsNorm",
        (x.handle, card.blank(F16, &[39]).handle, 1e-5f64, y.handle, rstd.handle),
        161002,
        "gamma has the shape [39]",
    );
    card.refused(
        "RmsNorm",
        (x.handle, card.blank(BF16, &[40]).handle, 1e-5f64, y.handle, rstd.handle),
        161002,
        "gamma is bf16 for x of f16",
    );
    let (sum, y2) = (card.blank(F16, &[3, 40]), card.blank(F16, &[3, 40]));
    let half = card.numbers(F16, &[40], &rounded(F16, &g));
    card.done("AddRmsNorm", (x.handle, x.handle, half.handle, 1e-5f64, y2.handle, rstd.handle, sum.handle));
    assert_eq!(card.values(sum), a.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
}

#[test]
fn the_norm_of_310p_wants_32_bytes() {
    let card = Card::open(r#"{"chip": "310p"}"#);
    let call = |columns: i64| {
        let (x, gamma) = (card.blank(F16, &[2, columns]), card.blank(F16, &[columns]));
        card.run(
            "RmsNorm",
            (x.handle, gamma.handle, 1e-5f64, card.blank(F16, &[2, columns]).handle, card.blank(F32, &[2, 1]).handle),
        )
    };
    assert!(call(15).expect_err("30 bytes").1.contains("30 bytes, 310P needs at least 32"));
    assert_eq!(call(16), Ok(()));
}

#[test]
fn norms_by_mean_and_softmax() {
    let card = Card::open("{}");
    let a = rounded(F32, &drawn(2 * 4 * 9, 1, 2.0));
    let x = card.numbers(F32, &[2, 4, 9], &a);
    let out = card.blank(F32, &[2, 4, 9]);
    let normed = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let root = 1.0 / (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64 + 1e-5).sqrt();
        row.iter().map(|x| (x - mean) * root).collect::<Vec<f64>>()
    };
    let none = null_mut::<()>();
    card.done("LayerNorm", (x.handle, card.ints(&[9]), none, none, 1e-5f64, out.handle, none, none));
    near("layer", &card.values(out), &a.chunks(9).flat_map(normed).collect::<Vec<_>>(), 1e-6);
    let (mean, rstd) = (card.blank(F32, &[2, 2]), card.blank(F32, &[2, 2]));
    card.done(
        "GroupNorm",
        (x.handle, none, none, 2i64, 4i64, 9i64, 2i64, 1e-5f64, out.handle, mean.handle, rstd.handle),
    );
    near("group", &card.values(out), &a.chunks(18).flat_map(normed).collect::<Vec<_>>(), 1e-6);
    card.refused(
        "GroupNorm",
        (x.handle, none, none, 2i64, 4i64, 9i64, 3i64, 1e-5f64, out.handle, mean.handle, rstd.handle),
        161002,
        "group is 3, which does not divide C 4",
    );
    card.done("Softmax", (x.handle, 1i64, out.handle));
    let at = |batch: usize, row: usize, column: usize| a[batch * 36 + row * 9 + column];
    let expected: Vec<f64> = (0..72)
        .map(|place| {
            let (batch, row, column) = (place / 36, place / 9 % 4, place % 9);
            at(batch, row, column).exp() / (0..4).map(|other| at(batch, other, column).exp()).sum::<f64>()
        })
        .collect();
    near("softmax", &card.values(out), &expected, 1e-6);
    card.refused("Softmax", (x.handle, 3i64, out.handle), 161002, "dim is 3");
    let (lengths, two) = (card.blank(F32, &[2, 4, 1]), card.scalar(2.0));
    card.done("Norm", (x.handle, two, card.ints(&[2]), 1u8, lengths.handle));
    near(
        "norm",
        &card.values(lengths),
        &a.chunks(9).map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt()).collect::<Vec<_>>(),
        1e-6,
    );
}

#[test]
fn rotary_positions() {
    let card = Card::open("{}");
    let a = rounded(F32, &drawn(2 * 3 * 8, 1, 2.0));
    let angles = drawn(2 * 4, 2, 3.0);
    let (x, out) = (card.numbers(F32, &[1, 2, 3, 8], &a), card.blank(F32, &[1, 2, 3, 8]));
    for mode in [0i64, 1] {
        let angle =
            |position: usize, column: usize| angles[position * 4 + if mode == 0 { column % 4 } else { column / 2 }];
        let table = |of: fn(f64) -> f64| (0..16).map(|at| of(angle(at / 8, at % 8))).collect::<Vec<f64>>();
        let (cos, sin) =
            (card.numbers(F32, &[1, 2, 1, 8], &table(f64::cos)), card.numbers(F32, &[1, 2, 1, 8], &table(f64::sin)));
        card.done("RotaryPositionEmbedding", (x.handle, cos.handle, sin.handle, mode, out.handle));
        let mut expected = a.clone();
        for (row, pair) in (0..6).flat_map(|row| (0..4).map(move |pair| (row, pair))) {
            let (first, second) = if mode == 0 {
                (row * 8 + pair, row * 8 + pair + 4)
            } else {
                (row * 8 + 2 * pair, row * 8 + 2 * pair + 1)
            };
            let (sine, cosine) = angles[row / 3 * 4 + pair].sin_cos();
            expected[first] = a[first] * cosine - a[second] * sine;
            expected[second] = a[second] * cosine + a[first] * sine;
        }
        near("rope", &card.values(out), &expected, 1e-6);
        card.refused(
            "RotaryPositionEmbedding",
            (x.handle, cos.handle, sin.handle, 2i64, out.handle),
            161002,
            "mode is 2",
        );
        let strided = card.view(card.blank(F32, &[1, 2, 3, 16]).data, F32, &[1, 2, 3, 8], &[96, 48, 16, 1], 0, 2);
        card.refused(
            "RotaryPositionEmbedding",
            (x.handle, cos.handle, sin.handle, mode, strided),
            161002,
            "out is not contiguous",
        );
    }
    let wide = card.blank(F32, &[1, 1, 1, 896]);
    card.refused(
        "RotaryPositionEmbedding",
        (wide.handle, wide.handle, wide.handle, 0i64, card.blank(F32, &[1, 1, 1, 896]).handle),
        161002,
        "896 columns",
    );
    drop(card);
    let card = Card::open(r#"{"chip": "310p"}"#);
    let x = card.blank(F32, &[1, 1, 1, 8]);
    card.refused(
        "RotaryPositionEmbedding",
        (x.handle, x.handle, x.handle, 0i64, card.blank(F32, &[1, 1, 1, 8]).handle),
        361001,
        "no kernel exists for Ascend310P3",
    );
}

/// Shapes of an attention in BSND.
struct Shapes {
    queries: usize,
    keys: usize,
    heads: usize,
    key_heads: usize,
    columns: usize,
}

type H = Handle;
type First = unsafe extern "C" fn(
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    H,
    i64,
    f64,
    i64,
    i64,
    *const c_char,
    i64,
    i64,
    i64,
    i64,
    i64,
    u8,
    i64,
    i64,
    H,
    H,
    *mut u64,
    *mut H,
) -> i32;

/// preTokens and nextTokens beyond all keys.
const FAR: i64 = 65535;

/// One attention without quantization, by a sparse mode and a distance to both sides; the code with the message where
/// it is refused.
fn attend(
    card: &Card,
    shapes: &Shapes,
    [q, k, v, shift, mask, out]: [H; 6],
    scale: f64,
    (sparse, distance): (i64, i64),
) -> Result<(), (i32, String)> {
    let first: First = card.symbol("aclnnFusedInferAttentionScoreV2GetWorkspaceSize");
    let second: unsafe extern "C" fn(H, u64, H, H) -> i32 = card.symbol("aclnnFusedInferAttentionScoreV2");
    let synchronize: unsafe extern "C" fn(H) -> i32 = card.symbol("aclrtSynchronizeStream");
    let layout = CString::new("BSND").expect("no zero");
    let (n, mut size, mut executor): (*mut c_void, u64, H) = (null_mut(), 0, null_mut());
    let (k, v) = (card.list(&[k]), card.list(&[v]));
    // SAFETY: the arguments are those of the operator; the workspace has its size.
    let code = unsafe {
        let code = first(
            q,
            k,
            v,
            shift,
            mask,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            shapes.heads as i64,
            scale,
            distance,
            distance,
            layout.as_ptr(),
            shapes.key_heads as i64,
            sparse,
            0,
            0,
            0,
            0,
            0,
            0,
            out,
            n,
            &mut size,
            &mut executor,
        );
        if code != 0 {
            return Err((code, card.message()));
        }
        let workspace = card.upload(&vec![0; size as usize]);
        match second(workspace, size, executor, null_mut()) {
            0 => synchronize(null_mut()),
            code => code,
        }
    };
    if code == 0 { Ok(()) } else { Err((code, card.message())) }
}

/// The formula in f64 with keys masked by a function.
fn attended(
    shapes: &Shapes,
    q: &[f64],
    k: &[f64],
    v: &[f64],
    scale: f64,
    added: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let Shapes { queries, keys, heads, key_heads, columns } = *shapes;
    let mut out = vec![0.0; queries * heads * columns];
    for (row, head) in (0..queries).flat_map(|row| (0..heads).map(move |head| (row, head))) {
        let own = head / (heads / key_heads);
        let query = &q[(row * heads + head) * columns..][..columns];
        let score = |key: usize| {
            let other = &k[(key * key_heads + own) * columns..][..columns];
            (query.iter().zip(other).map(|(a, b)| a * b).sum::<f64>() * scale + added(row, key)).exp()
        };
        let sum: f64 = (0..keys).map(score).sum();
        for column in 0..columns {
            let mixed: f64 = (0..keys).map(|key| score(key) * v[(key * key_heads + own) * columns + column]).sum();
            out[(row * heads + head) * columns + column] = mixed / sum;
        }
    }
    out
}

#[test]
fn attention_is_its_formula() {
    let card = Card::open("{}");
    let shapes = Shapes { queries: 5, keys: 7, heads: 4, key_heads: 2, columns: 16 };
    let (q, k, v) = (
        rounded(F16, &drawn(5 * 64, 1, 1.0)),
        rounded(F16, &drawn(7 * 32, 2, 1.0)),
        rounded(F16, &drawn(7 * 32, 3, 1.0)),
    );
    let place = |shape: &[i64], values: &[f64]| card.numbers(F16, shape, values);
    let keys = || (place(&[1, 7, 2, 16], &k).handle, place(&[1, 7, 2, 16], &v).handle);
    let (query, out) = (place(&[1, 5, 4, 16], &q), card.blank(F16, &[1, 5, 4, 16]));
    let (n, (key, value)) = (null_mut::<c_void>(), keys());
    assert_eq!(attend(&card, &shapes, [query.handle, key, value, n, n, out.handle], 0.25, (0, FAR)), Ok(()));
    near("plain", &card.values(out), &attended(&shapes, &q, &k, &v, 0.25, |_, _| 0.0), 2e-3);
    // Without a mask there is no band, however near.
    let (key, value) = keys();
    assert_eq!(attend(&card, &shapes, [query.handle, key, value, n, n, out.handle], 0.25, (0, 0)), Ok(()));
    near("without a mask", &card.values(out), &attended(&shapes, &q, &k, &v, 0.25, |_, _| 0.0), 2e-3);
    let shift = rounded(F16, &drawn(35, 4, 2.0));
    let plane = card.upload(&encode(F16, &shift));
    let stretched = card.view(plane, F16, &[1, 4, 5, 7], &[35, 0, 7, 1], 0, 2);
    let (key, value) = keys();
    assert_eq!(attend(&card, &shapes, [query.handle, key, value, stretched, n, out.handle], 0.25, (0, FAR)), Ok(()));
    near("shifted", &card.values(out), &attended(&shapes, &q, &k, &v, 0.25, |row, key| shift[row * 7 + key]), 2e-3);
    let causal: Vec<f64> = (0..35).map(|at| f64::from(u8::from(at % 7 > at / 7 + 2))).collect();
    let mask = card.numbers(BOOL, &[5, 7], &causal);
    let (key, value) = keys();
    assert_eq!(attend(&card, &shapes, [query.handle, key, value, n, mask.handle, out.handle], 0.25, (0, FAR)), Ok(()));
    let expected = attended(&shapes, &q, &k, &v, 0.25, |row, key| if key > row + 2 { f64::NEG_INFINITY } else { 0.0 });
    near("masked", &card.values(out), &expected, 2e-3);
    let (key, value) = keys();
    assert_eq!(attend(&card, &shapes, [query.handle, key, value, n, mask.handle, out.handle], 0.25, (0, 1)), Ok(()));
    let near_ones = |row: usize, key: usize| if row.abs_diff(key) > 1 { f64::NEG_INFINITY } else { 0.0 };
    near("banded", &card.values(out), &attended(&shapes, &q, &k, &v, 0.25, near_ones), 2e-3);
    let compressed = card.blank(BOOL, &[2048, 2048]);
    let (key, value) = keys();
    assert_eq!(
        attend(&card, &shapes, [query.handle, key, value, n, compressed.handle, out.handle], 0.25, (3, FAR)),
        Ok(())
    );
    near("right-down", &card.values(out), &expected, 2e-3);
}

#[test]
fn a_single_query_has_no_sparse_mode() {
    let card = Card::open("{}");
    let shapes = Shapes { queries: 1, keys: 7, heads: 2, key_heads: 2, columns: 16 };
    let (q, kv) = (rounded(F16, &drawn(32, 1, 1.0)), rounded(F16, &drawn(7 * 32, 2, 1.0)));
    let (query, out) = (card.numbers(F16, &[1, 1, 2, 16], &q).handle, card.blank(F16, &[1, 1, 2, 16]));
    let odd: Vec<f64> = (0..7).map(|key| f64::from(key % 2)).collect();
    for (mask, added) in [(false, 0.0), (true, f64::NEG_INFINITY)] {
        let (key, value) = (card.numbers(F16, &[1, 7, 2, 16], &kv), card.numbers(F16, &[1, 7, 2, 16], &kv));
        let given = if mask { card.numbers(BOOL, &[1, 7], &odd).handle } else { null_mut() };
        let operands = [query, key.handle, value.handle, null_mut(), given, out.handle];
        assert_eq!(attend(&card, &shapes, operands, 0.25, (3, FAR)), Ok(()));
        let expected = attended(&shapes, &q, &kv, &kv, 0.25, |_, key| if key % 2 == 1 { added } else { 0.0 });
        near("a single query", &card.values(out), &expected, 2e-3);
    }
}

#[test]
fn attention_has_planned_faults() {
    let run = |fault: &str| {
        let card = Card::open(&format!(
            r#"{{"faults": [{{"kind": "{fault}", "operator": "aclnnFusedInferAttentionScoreV2", "at": 2}}]}}"#
        ));
        let shapes = Shapes { queries: 20, keys: 40, heads: 2, key_heads: 1, columns: 32 };
        let (q, kv) = (rounded(F16, &drawn(20 * 64, 1, 1.0)), rounded(F16, &drawn(40 * 32, 2, 1.0)));
        let (query, none) = (card.numbers(F16, &[1, 20, 2, 32], &q).handle, null_mut());
        let results = [(); 2].map(|()| {
            let [key, value] = [(); 2].map(|()| card.numbers(F16, &[1, 40, 1, 32], &kv).handle);
            let out = card.blank(F16, &[1, 20, 2, 32]);
            let operands = [query, key, value, none, none, out.handle];
            assert_eq!(attend(&card, &shapes, operands, 0.25, (0, FAR)), Ok(()));
            card.values(out)
        });
        results[0].iter().zip(&results[1]).filter(|(a, b)| a != b).count()
    };
    let tiles = run("wrong_tile");
    assert!((2..=512).contains(&tiles), "{tiles} numbers of a tile of each head");
    assert!(run("dropped_group") > 1200);
}

#[test]
fn attention_refuses_what_it_does_not_do() {
    let card = Card::open("{}");
    let n = null_mut::<c_void>();
    let refused = |heads: usize, key_heads: usize, columns: usize, sparse: i64, words: &str| {
        let shapes = Shapes { queries: 2, keys: 3, heads, key_heads, columns };
        let place = |rows: i64, heads: usize| card.blank(F16, &[1, rows, heads as i64, columns as i64]).handle;
        let found = attend(
            &card,
            &shapes,
            [place(2, heads), place(3, key_heads), place(3, key_heads), n, n, place(2, heads)],
            1.0,
            (sparse, FAR),
        );
        let (code, message) = found.expect_err(words);
        assert!(code == 161002 && message.contains(words), "{message:?} lacks {words:?}");
    };
    refused(4, 2, 24, 0, "a head size of 24");
    refused(4, 3, 16, 0, "numKeyValueHeads is 3 for 4 heads");
    refused(4, 2, 16, 1, "attenMask is null for sparseMode 1");
    refused(4, 2, 16, 3, "attenMask is null for sparseMode 3");
    refused(4, 2, 16, 5, "sparseMode is 5");
    drop(card);
    let card = Card::open(r#"{"chip": "310p"}"#);
    let shapes = Shapes { queries: 1, keys: 1, heads: 1, key_heads: 1, columns: 16 };
    let place = || card.blank(F16, &[1, 1, 1, 16]).handle;
    assert_eq!(
        attend(&card, &shapes, [place(), place(), place(), n, n, place()], 1.0, (0, FAR)).expect_err("no kernel").0,
        361001
    );
}

#[test]
fn pictures() {
    let card = Card::open("{}");
    let a = rounded(F32, &drawn(2 * 5 * 6, 1, 2.0));
    let shape = [1i64, 2, 5, 6];
    let data = card.upload(&encode(F32, &a));
    let x = card.view(data, F32, &shape, &packed(&shape), 0, 0);
    let at = |plane: usize, row: i64, column: i64| {
        let inside = (0..5).contains(&row) && (0..6).contains(&column);
        if inside { Some(a[plane * 30 + row as usize * 6 + column as usize]) } else { None }
    };
    let under = |plane: usize, row: i64, column: i64| {
        (0..9).filter_map(move |tap| at(plane, row * 2 - 1 + tap / 3, column * 2 - 1 + tap % 3))
    };
    let cells: Vec<(usize, i64, i64)> = (0..18).map(|cell| (cell / 9, cell as i64 / 3 % 3, cell as i64 % 3)).collect();
    let (three, two, one, pads) = (card.ints(&[3, 3]), card.ints(&[2, 2]), card.ints(&[1, 1]), card.ints(&[1, 1]));
    let out = card.blank(F32, &[1, 2, 3, 3]);
    card.done("AvgPool2d", (x, three, two, pads, 0u8, 1u8, 0i64, 0i8, out.handle));
    near(
        "average",
        &card.values(out),
        &cells.iter().map(|&(p, r, c)| under(p, r, c).sum::<f64>() / 9.0).collect::<Vec<_>>(),
        1e-6,
    );
    card.done("MaxPool", (x, three, two, 0i64, pads, one, 0i64, out.handle));
    near(
        "largest",
        &card.values(out),
        &cells.iter().map(|&(p, r, c)| under(p, r, c).fold(f64::MIN, f64::max)).collect::<Vec<_>>(),
        0.0,
    );
    card.refused("MaxPool", (x, three, two, 1i64, pads, one, 0i64, out.handle), 161002, "autoPad is 1");
    let columns = card.blank(F32, &[1, 18, 9]);
    card.done("Im2col", (x, three, one, pads, two, columns.handle));
    let unfolded: Vec<f64> = (0..162)
        .map(|place| {
            let (plane, tap, cell) = (place / 81, (place / 9 % 9) as i64, (place % 9) as i64);
            at(plane, cell / 3 * 2 - 1 + tap / 3, cell % 3 * 2 - 1 + tap % 3).unwrap_or(0.0)
        })
        .collect();
    assert_eq!(card.values(columns), unfolded);
    let w = rounded(F32, &drawn(4 * 18, 5, 1.0));
    let weight_shape = [4i64, 2, 3, 3];
    let weight = card.view(card.upload(&encode(F32, &w)), F32, &weight_shape, &packed(&weight_shape), 0, 0);
    let made = card.blank(F32, &[1, 4, 3, 3]);
    let target_shape = [1i64, 4, 3, 3];
    let target = card.view(made.data, F32, &target_shape, &packed(&target_shape), 0, 0);
    let none = null_mut::<()>();
    card.done("Convolution", (x, weight, none, two, pads, one, 0u8, card.ints(&[0, 0]), 1i64, target, 0i8));
    let expected: Vec<f64> = (0..36)
        .map(|place| (0..18).map(|term| w[place / 9 * 18 + term] * unfolded[term * 9 + place % 9]).sum())
        .collect();
    near("convolution", &card.values(made), &expected, 1e-6);
    let big = card.blank(F32, &[1, 2, 10, 12]);
    let big_shape = [1i64, 2, 10, 12];
    let up = card.view(big.data, F32, &big_shape, &packed(&big_shape), 0, 0);
    card.done("UpsampleNearest2d", (x, card.ints(&[10, 12]), up));
    let expected: Vec<f64> =
        (0..240).map(|place| a[place / 120 * 30 + place % 120 / 12 / 2 * 6 + place % 12 / 2]).collect();
    assert_eq!(card.values(big), expected);
    card.refused("UpsampleNearest2d", (x, card.ints(&[10, 12]), big.handle), 161002, "out has the format 2");
}
