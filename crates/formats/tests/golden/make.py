"""Makes the golden files of trueup-formats with the format's own Python packages.

    python make.py        (numpy 2.4, gguf 0.19.0, safetensors 0.8)

values.gguf           every value type and array type, three tensors
split-0000?-of-...    two tensors to a file
arrays.safetensors    three types
trace_npz*.bin        a trace as NumPy's .npz, stored and deflated
"""

import os
import numpy as np
import gguf
from safetensors.numpy import save

HERE = os.path.dirname(os.path.abspath(__file__))


def values():
    writer = gguf.GGUFWriter(os.path.join(HERE, "values.gguf"), "llama")
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_float32("test.f32", 1.5)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "grüße \u2581")
    writer.add_uint64("test.u64", 1 << 63)
    writer.add_int64("test.i64", -(1 << 62))
    writer.add_float64("test.f64", 0.1)
    kinds = gguf.GGUFValueType
    for name, items, kind in [
        ("u8", [1, 2], kinds.UINT8), ("i8", [-1, 2], kinds.INT8), ("u16", [1, 2], kinds.UINT16),
        ("i16", [-1, 2], kinds.INT16), ("u32", [1, 2], kinds.UINT32), ("i32", [-1, 2], kinds.INT32),
        ("f32", [0.5, -0.25], kinds.FLOAT32), ("bool", [True, False], kinds.BOOL), ("string", ["a", "bc"], kinds.STRING),
        ("u64", [1, 2], kinds.UINT64), ("i64", [-1, 2], kinds.INT64), ("f64", [0.5, -0.25], kinds.FLOAT64),
    ]:
        writer.add_key_value(f"test.array.{name}", items, kinds.ARRAY, sub_type=kind)
    writer.add_tensor("matrix.weight", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("half.weight", np.arange(5, dtype=np.float16))
    rows = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
    blocks = gguf.quants.quantize(rows, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blocks.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    finish(writer)


def split():
    writer = gguf.GGUFWriter(os.path.join(HERE, "split.gguf"), "llama", split_max_tensors=2)
    writer.add_uint32("llama.block_count", 3)
    for index in range(5):
        writer.add_tensor(f"blk.{index}.weight", np.full((2, 3 + index), index, dtype=np.float32))
    finish(writer)


def traces():
    arrays = {
        "0/inp_embd": np.array([1.5, -2.0], dtype=np.float16),
        "0/l_out-0": np.arange(6, dtype=np.float32).reshape(2, 3),
        "1/l_out-0": np.array([[0.25, -0.5, 1e300]]),
        "ids": np.array([3, 1, 4]),
        "tokens": np.array([2, 1], dtype=np.int32),
    }
    for name, save_arrays in [("trace_npz", np.savez), ("trace_npz_deflated", np.savez_compressed)]:
        with open(os.path.join(HERE, f"{name}.bin"), "wb") as file:
            save_arrays(file, **arrays)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def arrays():
    data = save(
        {
            "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
            "half": np.arange(4, dtype=np.float16),
            "scalar": np.array(7, dtype=np.int64),
        },
        {"format": "np"},
    )
    with open(os.path.join(HERE, "arrays.safetensors"), "wb") as file:
        file.write(data)


values()
split()
arrays()
traces()
