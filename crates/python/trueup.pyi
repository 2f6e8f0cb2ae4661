"""Convert, quantize, run and verify language models."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Optional, Union, final

import numpy
from numpy.typing import NDArray

__all__ = [
    "GgufFile",
    "GgufTensor",
    "Model",
    "Service",
    "TrueupError",
    "__version__",
    "compare",
    "convert",
    "imatrix",
    "quantize",
    "read_gguf",
    "verify",
]

__version__: str

class TrueupError(Exception):
    """An error of trueup, in one sentence: the file, the place, what is wrong, and what to do."""

@final
class Model:
    """A model file on a device. Calls from several threads run concurrently."""

    def __new__(
        cls,
        path: Union[str, PathLike[str]],
        device: str = "cpu",
        threads: Optional[int] = None,
        context: Optional[int] = None,
    ) -> Model:
        """Open a GGUF file on "cpu", "cuda", "npu", "ref" (the f64 reference) or another device.

        `trueup devices` lists the devices. A comma-separated list distributes the layers over several devices. threads:
        None uses one per core. context: most tokens of a prompt and its output together; None uses the model's context,
        at most 4096.
        """

    def tokenize(self, text: str, special: bool = True) -> list[int]:
        """Convert text to token ids. With special, add the tokens that begin and end every text."""

    def detokenize(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """Convert token ids to text. Bytes that are not valid UTF-8 become U+FFFD."""

    def generate(
        self,
        prompt: str,
        max_tokens: Optional[int] = None,
        temperature: float = 0.0,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1.0,
        seed: int = 0,
        on_text: Optional[Callable[[str], object]] = None,
        context_shift: bool = False,
        keep: Optional[int] = 0,
    ) -> str:
        """Generate the text that follows a prompt.

        on_text is called with each part as soon as its characters are complete. With context_shift, a full context
        drops half of the tokens after the kept ones and continues. keep is the number of prompt tokens to keep; None
        keeps the whole prompt.
        """

    def logits(self, ids: Iterable[int]) -> NDArray[numpy.float32]:
        """The logits after each id, of shape (tokens, vocabulary). An encoder-decoder model returns one row."""

    def embed(self, ids: Iterable[int]) -> NDArray[numpy.float32]:
        """The embedding of a text, of shape (1, hidden size), from an encoder; without pooling, one row per id."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the file: keys and values in file order."""

@final
class Service:
    """Continuous batching for one model. Any thread can submit requests.

    Each result is the same as if the request ran alone.
    """

    def __new__(
        cls, model: Model, sequences: int = 4, context: Optional[int] = None, requests: int = 256
    ) -> Service:
        """Compute up to `sequences` requests at once.

        requests: most requests that may be waiting, running, or finished and not yet fetched.
        """

    def submit(
        self,
        prompt: str,
        max_tokens: Optional[int] = None,
        temperature: float = 0.0,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1.0,
        seed: int = 0,
        on_text: Optional[Callable[[str], object]] = None,
        context_shift: bool = False,
        keep: Optional[int] = 0,
    ) -> int:
        """Submit a prompt with the arguments of Model.generate, and return the request number immediately.

        The service's thread calls on_text, which must not call fetch. An exception in on_text ends the text, and fetch
        raises it.
        """

    def fetch(self, number: int, timeout: Optional[float] = None) -> Optional[str]:
        """Wait for the text of a request and return it once.

        Returns None if it is not finished within timeout seconds.
        """

    def cancel(self, number: int) -> bool:
        """Cancel a request that is waiting, running or finished. Returns whether it existed."""

    def close(self) -> None:
        """Cancel all requests and stop the service. Pending calls of fetch raise TrueupError."""

    def __enter__(self) -> Service: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class GgufFile:
    """The metadata and tensors of an open GGUF file."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the file: keys and values in file order."""

    @property
    def tensors(self) -> dict[str, GgufTensor]:
        """The tensors by name, in file order."""

@final
class GgufTensor:
    """A tensor of a GGUF file. Its data is read on request."""

    @property
    def name(self) -> str:
        """The name in the file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in NumPy order, innermost dimension last: (rows, columns)."""

    @property
    def dtype(self) -> str:
        """The type, such as "f32" or "q4_0"."""

    @property
    def nbytes(self) -> int:
        """The size in the file, in bytes."""

    @property
    def data(self) -> NDArray[numpy.uint8]:
        """The raw bytes, read on each access. The last dimension is the bytes of a row."""

    def to_float32(self) -> NDArray[numpy.float32]:
        """The values, read and decoded on each call, in the tensor's shape."""

def convert(
    source: Union[str, PathLike[str]],
    output: Union[str, PathLike[str]],
    type: Optional[str] = None,
    check: bool = False,
    resume: bool = False,
    prune_vocab: Optional[str] = None,
    split: Union[str, int, None] = None,
    metadata: Optional[dict[str, Any]] = None,
    tokenizer: Union[str, PathLike[str], None] = None,
    threads: Optional[int] = None,
    slim_vocab: Optional[str] = None,
    rules: Optional[Sequence[str]] = None,
    imatrix: Union[str, PathLike[str], None] = None,
    allow_partial_imatrix: bool = False,
    imatrix_exact: bool = False,
    token_embedding_type: Optional[str] = None,
    output_tensor_type: Optional[str] = None,
    leave_output_tensor: bool = False,
    pure: bool = False,
    strict: bool = False,
) -> dict[str, Any]:
    """Convert a checkpoint to GGUF. With check, compare each written tensor with its source.

    An output name that ends in ".flm" writes a FastLLM file. prune_vocab selects the tokens to keep: "ids:FILE",
    "corpus:FILE" or "drop:A-B". split is "layers", or the largest size of a file in bytes. metadata sets keys.
    slim_vocab is the former name of prune_vocab. The arguments from rules to strict are those of quantize.
    """

def quantize(
    source: Union[str, PathLike[str]],
    output: Union[str, PathLike[str]],
    type: Optional[str] = None,
    layout: str = "block",
    pure: bool = False,
    resume: bool = False,
    bits: Optional[int] = None,
    threads: Optional[int] = None,
    rules: Optional[Sequence[str]] = None,
    imatrix: Union[str, PathLike[str], None] = None,
    allow_partial_imatrix: bool = False,
    imatrix_exact: bool = False,
    token_embedding_type: Optional[str] = None,
    output_tensor_type: Optional[str] = None,
    leave_output_tensor: bool = False,
    strict: bool = False,
    attest: Union[str, PathLike[str], None] = None,
) -> dict[str, Any]:
    """Quantize a GGUF file, and return the type and the quantization error of each tensor.

    An output name that ends in ".flm" writes a FastLLM file; pass bits (4, 8 or 16) in that case. rules set the types
    of single tensors, such as ["ffn_down=q6_k"]. imatrix is the path of an importance matrix. attest is the
    path of an attestation to write.
    """

def imatrix(
    model: Union[str, PathLike[str]],
    corpus: Union[str, PathLike[str]],
    output: Union[str, PathLike[str]],
    context: Optional[int] = None,
    chunks: Optional[int] = None,
    output_head: bool = False,
    device: str = "cpu",
    threads: Optional[int] = None,
) -> dict[str, Any]:
    """Compute an importance matrix from a text file, for the imatrix argument of quantize."""

def compare(
    model: Union[str, PathLike[str]],
    corpus: Union[str, PathLike[str]],
    against: Union[str, PathLike[str], None] = None,
    context: Optional[int] = None,
    chunks: Optional[int] = None,
    worst: int = 5,
    device: str = "cpu",
    threads: Optional[int] = None,
) -> dict[str, Any]:
    """Measure the perplexity of a model on a text file, and its KL divergence from a reference."""

def read_gguf(path: Union[str, PathLike[str]]) -> GgufFile:
    """Open a GGUF file to read its metadata and tensors. For a split model, pass the first file."""

def verify(
    model: Union[str, PathLike[str]],
    device: str = "cpu",
    reference: str = "ref",
    prompts: Optional[Sequence[str]] = None,
    steps: int = 8,
) -> dict[str, Any]:
    """Compare every node of a model on a device with the f64 reference."""
