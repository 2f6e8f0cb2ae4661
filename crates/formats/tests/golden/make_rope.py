"""Makes llama2.c version 0 files whose rope tables were computed as the format's own programs do: in f32, by torch.

    python make_rope.py        (torch 2.11)

theta-10000.bin, theta-500000.bin    1 layer, 1 head of 16, 64 positions, all weights 0
scaled.bin                           theta 10000 with positions divided by 4
"""

import os
import struct
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 16, 4, 1, 1, 1, 4, 64


def write(name, theta, scale):
    exponents = torch.arange(0, DIM, 2)[: DIM // 2].float() / DIM
    frequencies = 1.0 / (theta ** exponents)
    angles = torch.outer(torch.arange(CONTEXT).float() / scale, frequencies).float()
    weights = VOCABULARY * DIM + LAYERS * (2 * DIM + 4 * DIM * DIM + 3 * HIDDEN * DIM) + DIM
    with open(os.path.join(HERE, name), "wb") as file:
        file.write(struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT))
        file.write(bytes(4 * weights))
        file.write(torch.cos(angles).numpy().tobytes())
        file.write(torch.sin(angles).numpy().tobytes())


write("theta-10000.bin", 10000.0, 1.0)
write("theta-500000.bin", 500000.0, 1.0)
write("scaled.bin", 10000.0, 4.0)
