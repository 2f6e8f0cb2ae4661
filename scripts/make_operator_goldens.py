#!/usr/bin/env python3
"""Write what each operator must give, from PyTorch and NumPy in float64.

    python scripts/make_operator_goldens.py [fixtures/operators]

One file for each operator: OPERATOR.safetensors. Its tensors are CASE.0, CASE.1 ... (the inputs, as
they are stored) and CASE.y (the result, f64, or i32 where it is an index). Shapes in the file are NumPy's: the
innermost last. The metadata has one key for each case, CASE: the operator with its parameters, as
JSON. The families stand in operators_*.py beside this script; each has GOLDENS, a dictionary from an
operator's name to a function that yields (parameters, inputs, result), and does not look at this project.
"""
import argparse
import json
import os

import numpy as np
from safetensors.numpy import save_file

import operators_attention
import operators_elementwise
import operators_layers
import operators_moving
import operators_reduce

FAMILIES = [operators_attention, operators_elementwise, operators_layers, operators_moving, operators_reduce]


def write(folder, name, cases):
    tensors, metadata = {}, {}
    for number, (op, inputs, result) in enumerate(cases):
        metadata[str(number)] = json.dumps(op)
        for place, tensor in enumerate(inputs):
            tensors[f"{number}.{place}"] = np.ascontiguousarray(tensor)
        y = np.asarray(result)
        tensors[f"{number}.y"] = np.ascontiguousarray(y if y.dtype == np.int32 else y.astype(np.float64))
    save_file(tensors, os.path.join(folder, f"{name}.safetensors"), metadata)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="fixtures/operators")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    for family in FAMILIES:
        for name, cases in family.GOLDENS.items():
            write(folder, name, cases())


if __name__ == "__main__":
    main()
