"""How a reply is drawn, as OpenAI's clients say it, with the engine's further options as extras."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from inference.choices import MAX_CHOICES
from webapp.api.schemas.base import Body, ModelBody

MAX_STOPS = 4
MAX_STOP_CHARS = 256
MAX_TOP_LOGPROBS = 20
MAX_COUNT = 2**31 - 1
SEEDS = 2**63

Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
TokenKey = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]


class StreamOptions(Body):
    include_usage: bool = False


class SamplingBody(ModelBody):
    """The fields that chat and completions share. Those below `user` are extras that OpenAI's API doesn't have."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=MAX_COUNT)
    stop: Stop | list[Stop] | None = Field(None, description=f"At most {MAX_STOPS}.",
                                           json_schema_extra={"maxItems": MAX_STOPS})
    seed: int | None = Field(None, ge=-SEEDS, lt=SEEDS)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[TokenKey, Bias] | None = None
    user: str | None = Field(None, max_length=512, description="Taken and not used: the key says who calls.")
    min_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=MAX_COUNT)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    min_tokens: int | None = Field(None, ge=0, le=MAX_COUNT)
    stop_token_ids: list[int] | None = Field(None, max_length=256)
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, stop: str | list[str] | None) -> str | list[str] | None:
        texts = [stop] if isinstance(stop, str) else stop or []
        if len(texts) > MAX_STOPS:
            raise ValueError(f"at most {MAX_STOPS} stop sequences are taken, and there are {len(texts)}")
        return stop

    @field_validator("logit_bias")
    @classmethod
    def _check_bias(cls, bias: dict[str, float] | None) -> dict[str, float] | None:
        if len(bias or {}) > 1024:
            raise ValueError("at most 1,024 token ids are taken")
        return bias

    @model_validator(mode="after")
    def _check_stream_options(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed when stream is true")
        return self

    @property
    def choices(self) -> int:
        return self.n or 1

    def sampling(self) -> dict[str, Any]:
        """The fields of inference.spec.SamplingParams that this names; max_tokens only where the request has it."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        found = {
            "temperature": 1.0 if self.temperature is None else self.temperature, "top_p": self.top_p,
            "seed": None if self.seed is None else self.seed % SEEDS, "stop": tuple(stops),
            "presence_penalty": self.presence_penalty, "frequency_penalty": self.frequency_penalty,
            "logit_bias": tuple((int(token_id), value) for token_id, value in (self.logit_bias or {}).items()),
            "max_tokens": self.max_tokens, "min_p": self.min_p, "top_k": self.top_k,
            "repetition_penalty": self.repetition_penalty, "min_tokens": self.min_tokens,
            "stop_token_ids": tuple(self.stop_token_ids or ()), "ignore_eos": self.ignore_eos,
            "include_stop": self.include_stop_str_in_output,
        }
        return {name: value for name, value in found.items() if value is not None}


class Usage(Body):
    """Tokens of a request. Those of the prompt that came from the cache are in `prompt_tokens_details`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] | None = None


FinishReason = Literal["stop", "length", "tool_calls"]
