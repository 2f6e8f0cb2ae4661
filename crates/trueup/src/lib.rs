//! Convert, quantize, run and verify language models.
