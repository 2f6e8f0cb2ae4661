//! Calls drawn at random.
use crate::object::Handle;
use std::ffi::c_char;
pub struct Draw;
impl Draw {
    pub fn tensor(&mut self) -> Handle { std::ptr::null_mut() }
    pub fn scalar(&mut self) -> Handle { std::ptr::null_mut() }
    pub fn ints(&mut self) -> Handle { std::ptr::null_mut() }
    pub fn tensors(&mut self) -> Handle { std::ptr::null_mut() }
    pub fn chance(&mut self, _: u64) -> bool { true }
    pub fn integer(&mut self) -> i64 { 0 }
    pub fn text(&mut self) -> *const c_char { std::ptr::null() }
}
pub struct DrawnCall { pub name: &'static str, pub prepare: fn(&mut Draw, *mut u64, *mut Handle) -> i32 }
