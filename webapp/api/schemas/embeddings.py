"""Requests and replies of `/v1/embeddings`."""

from typing import Annotated, Literal

from pydantic import Field

from webapp.api.schemas.base import Body, Ids, ModelBody, Text

MAX_INPUTS = 2048
Output = Literal["dense", "sparse", "multi_vector"]


class EmbeddingsBody(ModelBody):
    """Texts to embed, or their token ids. Those below `user` are extras that OpenAI's API doesn't have."""

    input: Text | Annotated[list[Text], Field(min_length=1)] | Ids | Annotated[list[Ids], Field(min_length=1)]
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="base64: little-endian float32. float when it isn't given.")
    dimensions: int | None = Field(None, ge=1, le=1_000_000)
    user: str | None = Field(None, max_length=512, description="Taken and not used: the key says who calls.")
    outputs: list[Output] | None = Field(
        None, min_length=1, max_length=3, description="What to return of each text, for models that have more than "
                                                      "dense vectors.")
    prompt_name: str | None = Field(None, max_length=64, description="One of the model's own prompts, such as query.")
    normalize: bool | None = Field(None, description="As the model's files say when it isn't given.")
    truncate: bool | None = Field(None, description="Cut texts that are too long instead of refusing them.")


class SparseVector(Body):
    """Lexical weights by token id."""

    indices: list[int]
    values: list[float]


class EmbeddingRow(Body):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str | None = None
    sparse_embedding: SparseVector | None = None
    multi_vector_embedding: list[list[float]] | list[str] | None = None


class EmbeddingUsage(Body):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsReply(Body):
    """One row for each input, in the order of the inputs."""

    object: Literal["list"] = "list"
    data: list[EmbeddingRow]
    model: str
    usage: EmbeddingUsage
