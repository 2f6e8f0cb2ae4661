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
    "convert",
    "quantize",
    "read_gguf",
    "verify",
]

__version__: str

class TrueupError(Exception):
    """What trueup refuses, in one sentence: which file, where, what is wrong, and what to do."""

@final
class Model:
    """A model file on a device. Calls from several threads run side by side."""

    def __new__(
        cls,
        path: Union[str, PathLike[str]],
        device: str = "cpu",
        threads: Optional[int] = None,
        context: Optional[int] = None,
    ) -> Model:
        """Open a GGUF file on "cpu", "cuda", "npu", another device that `trueup devices` lists, or several with commas between them.

        "ref" is exact arithmetic. Without threads, one per core. context: tokens that a text can have with its prompt; None is the model's, or 4096.
        """

    def tokenize(self, text: str, special: bool = True) -> list[int]:
        """The ids of a text; with special between those that begin and end every text."""

    def detokenize(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of ids. Bytes that are no whole characters become U+FFFD."""

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
        """The text behind a prompt. on_text is called with each piece as soon as its characters are whole.

        With context_shift a full context drops half of what is behind the kept tokens (keep, None is the whole prompt) and goes on.
        """

    def logits(self, ids: Iterable[int]) -> NDArray[numpy.float32]:
        """The logits behind each id: (tokens, vocabulary)."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The file's keys and values, in their order."""

@final
class Service:
    """A running batch of one model. Requests come from any thread, join and leave while others are computed, and give what each gives alone."""

    def __new__(
        cls, model: Model, sequences: int = 4, context: Optional[int] = None, requests: int = 256
    ) -> Service:
        """Compute so many sequences at once; hold at most so many requests that wait, run, or are not fetched yet."""

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
        """Ask for the text behind a prompt, as Model.generate does, and return the request's number at once.

        on_text is called by the service's thread, and must not fetch; what it raises ends the text and is raised by fetch.
        """

    def fetch(self, number: int, timeout: Optional[float] = None) -> Optional[str]:
        """Wait for a text, and forget it. None where it is not finished within timeout seconds."""

    def cancel(self, number: int) -> bool:
        """Forget a request, whether it waits, runs or is finished. Whether there was one."""

    def close(self) -> None:
        """End all requests and the service. Who waits in fetch is raised TrueupError."""

    def __enter__(self) -> Service: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class GgufFile:
    """The keys and tensors of a GGUF file, which stays open."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The file's keys and values, in their order."""

    @property
    def tensors(self) -> dict[str, GgufTensor]:
        """The tensors by name, in the order of the file."""

@final
class GgufTensor:
    """A tensor of a GGUF file. Nothing of it is read before it is asked for."""

    @property
    def name(self) -> str:
        """Its name in the file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes as NumPy orders them, the innermost last: (rows, columns)."""

    @property
    def dtype(self) -> str:
        """Its type, like "f32" or "q4_0"."""

    @property
    def nbytes(self) -> int:
        """Its bytes in the file."""

    @property
    def data(self) -> NDArray[numpy.uint8]:
        """Its bytes as they are in the file, read anew; the last size is the bytes of a row."""

    def to_float32(self) -> NDArray[numpy.float32]:
        """Its numbers, read and decoded anew, of its shape."""

def convert(
    source: Union[str, PathLike[str]],
    output: Union[str, PathLike[str]],
    type: Optional[str] = None,
    check: bool = False,
    resume: bool = False,
    slim_vocab: Optional[str] = None,
    split: Union[str, int, None] = None,
    metadata: Optional[dict[str, Any]] = None,
    tokenizer: Union[str, PathLike[str], None] = None,
    threads: Optional[int] = None,
) -> dict[str, Any]:
    """Write a checkpoint as a GGUF file; with check, compare each tensor of it with its source.

    An output that ends in ".flm" becomes a file of FastLLM. slim_vocab keeps fewer tokens: "ids:FILE", "corpus:FILE" or "drop:A-B".
    split is "layers", or the largest size of a file in bytes. metadata sets keys.
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
) -> dict[str, Any]:
    """Write a GGUF file with other types, and say how much each tensor lost.

    An output that ends in ".flm" becomes a file of FastLLM, and takes bits: 4, 8 or 16.
    """

def read_gguf(path: Union[str, PathLike[str]]) -> GgufFile:
    """Open a GGUF file to look at its keys and tensors; for a split one its first file."""

def verify(
    model: Union[str, PathLike[str]],
    device: str = "cpu",
    reference: str = "ref",
    prompts: Optional[Sequence[str]] = None,
    steps: int = 8,
) -> dict[str, Any]:
    """Compare every node of a model on a device with exact arithmetic."""
