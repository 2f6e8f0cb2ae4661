#!/usr/bin/env python3
"""Write the buckets that transformers gives to distances between tokens, for T5 and its relatives.

    python scripts/make_bucket_goldens.py [--out fixtures/relative-buckets.txt]

Each line has the number of buckets, the largest distance, and `distance:bucket` for each distance whose bucket is not that of
the distance before it. Computed by T5Attention._relative_position_bucket in one direction, for distances below 1200.

Some numbers put a distance exactly on the border between two buckets. The last bit of the f32 logarithm then decides, and
libraries differ in it. Lines are left out if a correctly rounded logarithm gives another bucket than torch's on this machine.
"""
import argparse
import math
import sys

sys.modules["kernels"] = None

import numpy
import torch
import transformers
from transformers.models.t5.modeling_t5 import T5Attention

DISTANCES = 1200
COUNTS = [4, 5, 7, 8, 9, 10, 13, 16, 19, 20, 24, 31, 32, 33, 36, 48, 51, 54, 55, 64, 65, 128]
DISTANCES_MAX = [16, 20, 25, 32, 33, 36, 48, 49, 64, 100, 127, 128, 129, 144, 200, 256, 800, 1000]


def buckets(count, distance_max):
    distances = -torch.arange(DISTANCES)
    return T5Attention._relative_position_bucket(distances, bidirectional=False, num_buckets=count, max_distance=distance_max).tolist()


def rounded_correctly(count, distance_max):
    exact, f32 = count // 2, numpy.float32

    def bucket(distance):
        if distance < exact:
            return distance
        logarithm = f32(math.log(float(f32(distance) / f32(exact))))
        return min(exact + int(logarithm / f32(math.log(distance_max / exact)) * f32(count - exact)), count - 1)

    return [bucket(distance) for distance in range(DISTANCES)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="fixtures/relative-buckets.txt")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    lines, skipped = [], []
    for count in COUNTS:
        for distance_max in (number for number in DISTANCES_MAX if number > count // 2):
            found = buckets(count, distance_max)
            if found != rounded_correctly(count, distance_max):
                skipped.append((count, distance_max))
                continue
            changes = [f"{d}:{bucket}" for d, bucket in enumerate(found) if d == 0 or bucket != found[d - 1]]
            lines.append(f"{count} {distance_max} {' '.join(changes)}")
    header = f"# python scripts/make_bucket_goldens.py, torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}"
    with open(out, "w", encoding="utf-8", newline="\n") as file:
        file.write("\n".join([header, *lines]) + "\n")
    print(f"{len(lines)} lines; left out: {skipped}")


if __name__ == "__main__":
    main()
