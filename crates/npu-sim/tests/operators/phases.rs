//! The two phases, handles, and which symbols there are.

use crate::card::*;
use std::{ffi::c_char, ptr::null_mut};

type First = unsafe extern "C" fn(Handle, Handle, *mut u64, *mut Handle) -> i32;
type Second = unsafe extern "C" fn(Handle, u64, Handle, Handle) -> i32;

#[test]
fn the_smallest_set_of_a_network_is_there() {
    let card = Card::open("{}");
    let names = "Add InplaceAdd Mul Muls Silu RmsNorm Softmax Cast InplaceCopy Permute Cat IndexSelect GatherV2 InplaceIndexCopy Mm BatchMatMul Matmul \
                 WeightQuantBatchMatmulV2 RotaryPositionEmbedding Neg Roll ArgMax InplaceFillScalar FusedInferAttentionScoreV2 SwiGlu AddRmsNorm TransMatmulWeight";
    for name in names.split_whitespace() {
        assert!(card.has(&format!("aclnn{name}")) && card.has(&format!("aclnn{name}GetWorkspaceSize")), "{name}");
    }
    assert!(!card.has("aclnnGroupedMatmulV4"), "what is not done has no symbol");
}

/// The first phase of a function of one tensor.
fn first(card: &Card, name: &str, x: Handle, out: Handle) -> (u64, Handle) {
    let first: First = card.symbol(&format!("aclnn{name}GetWorkspaceSize"));
    let (mut size, mut executor) = (0, null_mut());
    // SAFETY: as the C interface says.
    assert_eq!(unsafe { first(x, out, &mut size, &mut executor) }, 0, "{}", card.message());
    (size, executor)
}

#[test]
fn an_executor_runs_once() {
    let card = Card::open("{}");
    let (x, out) = (card.numbers(F32, &[4], &[1.0, 2.0, 3.0, 4.0]), card.blank(F32, &[4]));
    let (size, executor) = first(&card, "Neg", x.handle, out.handle);
    let (neg, abs): (Second, Second) = (card.symbol("aclnnNeg"), card.symbol("aclnnAbs"));
    // SAFETY: as the C interface says; the wrong calls are refused.
    unsafe {
        assert_eq!(abs(null_mut(), size, executor, null_mut()), 161002);
        assert!(card.message().contains("aclnnAbs: executor is one of aclnnNeg"), "{}", card.message());
        assert_eq!(neg(null_mut(), size, null_mut(), null_mut()), 161001);
        assert_eq!(neg(null_mut(), size, executor, null_mut()), 0);
        assert_eq!(neg(null_mut(), size, executor, null_mut()), 161002);
        assert!(card.message().contains("a handle that was destroyed"), "{}", card.message());
    }
}

#[test]
fn a_workspace_that_was_asked_for_is_wanted() {
    let card = Card::open("{}");
    let (x, out) = (card.blank(F16, &[4, 4]), card.blank(F16, &[4, 4]));
    let mm: unsafe extern "C" fn(Handle, Handle, Handle, i8, *mut u64, *mut Handle) -> i32 =
        card.symbol("aclnnMmGetWorkspaceSize");
    let run: Second = card.symbol("aclnnMm");
    let asked = || {
        let (mut size, mut executor) = (0, null_mut());
        // SAFETY: as the C interface says.
        assert_eq!(unsafe { mm(x.handle, x.handle, out.handle, 1, &mut size, &mut executor) }, 0);
        (size, executor)
    };
    let (size, executor) = asked();
    assert!(size > 0);
    let workspace = card.upload(&vec![0; size as usize]);
    let (_, other) = asked();
    // SAFETY: as the C interface says; the wrong calls are refused.
    unsafe {
        assert_eq!(run(null_mut(), size, executor, null_mut()), 161001);
        assert_eq!(run(workspace, size, executor, null_mut()), 161002, "a refused executor is freed");
        assert_eq!(run(workspace, size - 1, other, null_mut()), 161002);
        assert_eq!(run(workspace, size, asked().1, null_mut()), 0);
        let (_, third) = asked();
        assert_eq!(mm(x.handle, x.handle, out.handle, 1, null_mut(), &mut null_mut()), 161001);
        let destroy: unsafe extern "C" fn(Handle) -> i32 = card.symbol("aclDestroyAclOpExecutor");
        assert_eq!((destroy(third), destroy(third)), (0, 161002));
    }
}

#[test]
fn a_workspace_on_an_operand_is_found() {
    let card = Card::open("{}");
    let mm: unsafe extern "C" fn(Handle, Handle, Handle, i8, *mut u64, *mut Handle) -> i32 =
        card.symbol("aclnnMmGetWorkspaceSize");
    let run: Second = card.symbol("aclnnMm");
    let synchronize: unsafe extern "C" fn(Handle) -> i32 = card.symbol("aclrtSynchronizeStream");
    let (room, w, out) = (card.upload(&[0; 1 << 20]), card.blank(F32, &[4, 4]), card.blank(F32, &[4, 4]));
    // An operand just behind the workspace is none of it; one that begins 32 bytes before its end is.
    for (bytes_behind, code) in [(0i64, 0), (-32, 507000)] {
        let (mut size, mut executor) = (0u64, null_mut());
        let view = |offset: i64| card.view(room, F32, &[4, 4], &[4, 1], offset, 2);
        // SAFETY: as the C interface says; the room holds the workspace and the operand.
        unsafe {
            assert_eq!(mm(view(0), w.handle, out.handle, 1, &mut size, &mut executor), 0);
            let x = view((size as i64 + bytes_behind) / 4);
            assert_eq!(mm(x, w.handle, out.handle, 1, &mut size, &mut executor), 0);
            assert_eq!(run(room, size, executor, null_mut()), 0);
            assert_eq!(synchronize(null_mut()), code, "{}", card.message());
        }
    }
    let expected = "race: aclnnMm workspace overlaps bytes of argument self of the same launch";
    assert!(card.message().contains(expected), "{}", card.message());
}

#[test]
fn a_repeatable_executor_runs_again_at_other_addresses() {
    let card = Card::open("{}");
    let (x, y) = (card.numbers(F32, &[2], &[1.0, 2.0]), card.numbers(F32, &[2], &[5.0, 6.0]));
    let (out, second_out) = (card.blank(F32, &[2]), card.blank(F32, &[2]));
    let (_, executor) = first(&card, "Neg", x.handle, out.handle);
    let repeatable: unsafe extern "C" fn(Handle) -> i32 = card.symbol("aclSetAclOpExecutorRepeatable");
    let set: unsafe extern "C" fn(Handle, usize, Handle, Handle) -> i32 = card.symbol("aclSetInputTensorAddr");
    let set_out: unsafe extern "C" fn(Handle, usize, Handle, Handle) -> i32 = card.symbol("AclSetOutputTensorAddr");
    let synchronize: unsafe extern "C" fn(Handle) -> i32 = card.symbol("aclrtSynchronizeStream");
    let destroy: unsafe extern "C" fn(Handle) -> i32 = card.symbol("aclDestroyAclOpExecutor");
    let neg: Second = card.symbol("aclnnNeg");
    // SAFETY: as the C interface says; the wrong calls are refused.
    unsafe {
        assert_eq!(set(executor, 0, x.handle, y.data), 161002, "it is not repeatable yet");
        assert_eq!(repeatable(executor), 0);
        assert_eq!(neg(null_mut(), 0, executor, null_mut()), 0);
        assert_eq!(set(executor, 1, x.handle, y.data), 161002);
        assert_eq!((set(executor, 0, x.handle, y.data), set_out(executor, 0, out.handle, second_out.data)), (0, 0));
        assert_eq!(neg(null_mut(), 0, executor, null_mut()), 0);
        assert_eq!(synchronize(null_mut()), 0);
        assert_eq!(destroy(executor), 0);
    }
    assert_eq!((card.values(out), card.values(second_out)), (vec![-1.0, -2.0], vec![-5.0, -6.0]));
}

#[test]
fn operands_are_counted_as_arguments_stand() {
    let card = Card::open("{}");
    let place = |values: &[f64]| card.numbers(F32, &[2, 2], values);
    let (bias, other, out) = (place(&[1.0; 4]), place(&[100.0; 4]), card.blank(F32, &[2, 2]));
    let (left, right, one) = (place(&[2.0, 0.0, 0.0, 2.0]), place(&[3.0, 0.0, 0.0, 3.0]), card.scalar(1.0));
    let addmm: unsafe extern "C" fn(Handle, Handle, Handle, Handle, Handle, Handle, i8, *mut u64, *mut Handle) -> i32 =
        card.symbol("aclnnAddmmGetWorkspaceSize");
    let second: Second = card.symbol("aclnnAddmm");
    let repeatable: unsafe extern "C" fn(Handle) -> i32 = card.symbol("aclSetAclOpExecutorRepeatable");
    let set: unsafe extern "C" fn(Handle, usize, Handle, Handle) -> i32 = card.symbol("aclSetInputTensorAddr");
    let synchronize: unsafe extern "C" fn(Handle) -> i32 = card.symbol("aclrtSynchronizeStream");
    let destroy: unsafe extern "C" fn(Handle) -> i32 = card.symbol("aclDestroyAclOpExecutor");
    let (mut size, mut executor) = (0, null_mut());
    let (a, b, c, sum) = (bias.handle, left.handle, right.handle, out.handle);
    // SAFETY: as the C interface says; the workspace has its size.
    unsafe {
        assert_eq!(addmm(a, b, c, one, one, sum, 0, &mut size, &mut executor), 0, "{}", card.message());
        assert_eq!(repeatable(executor), 0);
        let workspace = card.upload(&vec![0; size as usize]);
        assert_eq!(set(executor, 0, a, other.data), 0);
        assert_eq!((second(workspace, size, executor, null_mut()), synchronize(null_mut())), (0, 0));
        assert_eq!(destroy(executor), 0);
    }
    assert_eq!(card.values(out), [106.0, 100.0, 100.0, 106.0]);
}

#[test]
fn handles_tell_what_they_were_told() {
    let card = Card::open("{}");
    let x = card.blank(F16, &[2, 3]);
    let view = card.view(x.data, F16, &[3, 2], &[1, 3], 0, 2);
    let read: unsafe extern "C" fn(Handle, *mut *mut i64, *mut u64) -> i32 = card.symbol("aclGetViewStrides");
    let ty: unsafe extern "C" fn(Handle, *mut i32) -> i32 = card.symbol("aclGetDataType");
    let size: unsafe extern "C" fn(Handle, *mut u64) -> i32 = card.symbol("aclGetIntArraySize");
    let (mut strides, mut count, mut code) = (null_mut(), 0, 0);
    // SAFETY: as the C interface says; the array is released below.
    unsafe {
        assert_eq!((read(view, &mut strides, &mut count), ty(view, &mut code)), (0, 0));
        assert_eq!((std::slice::from_raw_parts(strides, count as usize), code), (&[1i64, 3][..], F16));
        libc::free(strides.cast());
        assert_eq!((size(card.ints(&[1, 2, 3]), &mut count), count), (0, 3));
        assert_eq!(size(view, &mut count), 161002);
        assert_eq!(ty(null_mut(), &mut code), 161001);
        let create: unsafe extern "C" fn(
            *const i64,
            u64,
            i32,
            *const i64,
            i64,
            i32,
            *const i64,
            u64,
            Handle,
        ) -> Handle = card.symbol("aclCreateTensor");
        assert!(create(std::ptr::null(), 2, F16, std::ptr::null(), 0, 2, std::ptr::null(), 0, x.data).is_null());
        let scalar: unsafe extern "C" fn(Handle, i32) -> Handle = card.symbol("aclCreateScalar");
        assert!(scalar(null_mut(), F32).is_null());
        let init: unsafe extern "C" fn(*const c_char) -> i32 = card.symbol("aclnnInit");
        assert_eq!(init(std::ptr::null()), 0);
    }
}

#[test]
fn one_element_for_very_many_is_refused() {
    let card = Card::open("{}");
    let (one, out) = (card.numbers(F32, &[1], &[1.0]), card.blank(F32, &[]));
    let many = card.view(one.data, F32, &[1 << 36], &[0], 0, 2);
    card.refused("Max", (many, out.handle), 161002, "repeats its memory to more than the 268435456 elements");
    let some = card.view(one.data, F32, &[1 << 10], &[0], 0, 2);
    card.done("Max", (some, out.handle));
}

#[test]
fn the_same_bytes_are_in_place_however_they_are_said() {
    let card = Card::open("{}");
    let x = card.numbers(F32, &[1, 64], &[2.0; 64]);
    let by_offset = card.view(x.data, F32, &[1, 32], &[64, 1], 32, 2);
    let by_pointer = card.view(x.data.wrapping_byte_add(128), F32, &[1, 32], &[32, 1], 0, 2);
    card.done("Neg", (by_offset, by_pointer));
    assert_eq!(card.values(x), [[2.0; 32], [-2.0; 32]].concat());
    let shifted = card.view(x.data.wrapping_byte_add(64), F32, &[1, 32], &[32, 1], 0, 2);
    card.refused("Neg", (shifted, by_pointer), 161002, "overlaps bytes of");
}
