#!/usr/bin/env python3
"""Make an f16 model from a quantized GGUF file, to measure `trueup quantize --target` without an f16 checkpoint.

A dequantized file still lies on the grid of its types, which the same types then reproduce without an error. So each
weight is moved at random by up to half of the distance between two neighboring values of its block of 32. This costs
about as much quality as the quantization did, and leaves weights that favor no type.

    python scripts/target_models.py MODEL-q4_1.gguf model-f16.gguf

Needs: pip install gguf==0.17.1 numpy
"""

import argparse

import numpy
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

BLOCK = 32


def spread(weights, generator):
    """Moves weights within the steps of their grid."""
    blocks = weights.reshape(-1, BLOCK)
    gaps = numpy.diff(numpy.sort(blocks, axis=1), axis=1)
    largest = numpy.abs(blocks).max(axis=1, keepdims=True)
    # Differences of equal values are rounding.
    gaps = numpy.where(gaps > 1e-4 * largest, gaps, numpy.inf)
    step = gaps.min(axis=1, keepdims=True)
    step = numpy.where(numpy.isfinite(step), step, 0.0)
    noise = generator.uniform(-0.5, 0.5, blocks.shape).astype(numpy.float32)
    return (blocks + noise * step).reshape(weights.shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("target")
    arguments = parser.parse_args()
    reader = GGUFReader(arguments.source)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(arguments.target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind, *inner = field.types
        if kind == GGUFValueType.ARRAY:
            writer.add_key_value(name, field.contents(), kind, sub_type=inner[-1])
        else:
            writer.add_key_value(name, field.contents(), kind)
    writer.add_file_type(1)
    floats = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16)
    generator = numpy.random.default_rng(0)
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type)
        if tensor.tensor_type not in floats:
            weights = spread(weights, generator).astype(numpy.float16)
        writer.add_tensor(tensor.name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
