"""Builds the token ids of query and document together for a reranker; only the document is ever cut."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from inference.artifacts.errors import ArtifactError
from inference.text.pooling import EmbeddingText
from inference.text.tokenizer import TextTokenizer

CACHED_TEXTS = 8
PairMethod = Literal["cross_encoder", "yes_no", "late_interaction", "cosine"]

DEFAULT_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
YES_NO_PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
YES_NO_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
YES_NO_BODY = "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: "
"""Source: the model card of Qwen3-Reranker, whose code encodes the body as one text and joins the ids."""

QUERY_PROMPTS, DOCUMENT_PROMPTS = ("query", "search_query"), ("document", "passage", "search_document")


class QueryTooLongError(ValueError):
    """A query that leaves no room for a document. tokens: what it takes with the template; limit: what there is."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"the query takes {tokens:,} tokens with the model's template, and with a document at most "
                         f"{limit:,} fit")
        self.tokens = tokens
        self.limit = limit


@dataclass(frozen=True, kw_only=True)
class ScoreInputs:
    """What a Score frame wants (inference.protocol.Score), and how many tokens of documents were cut."""

    documents: list[list[int]]
    queries: list[list[int]] = field(default_factory=list)
    second_from: list[int] = field(default_factory=list)
    cut_tokens: int = 0


@dataclass(frozen=True)
class _Join:
    """How a tokenizer joins two texts: ids before, between and after them; second: the first id of token type 1."""

    before: list[int]
    between: list[int]
    after: list[int]
    typed: Literal["none", "between", "second"]


class PairText:
    """A reranker's tokenizer. Safe to use from several threads."""

    def __init__(self, text: EmbeddingText) -> None:
        self.text = text
        self._tokenizer = text.tokenizer

    @classmethod
    def from_path(cls, path: Path) -> "PairText":
        """Return the pairs' side of a model's folder; the last few stay loaded. Raises ArtifactError."""
        return cls(EmbeddingText.from_path(path))

    def encode(self, method: PairMethod, queries: Sequence[str], documents: Sequence[str], *,
               instruction: str | None = None, max_tokens: int | None = None,
               max_tokens_per_doc: int | None = None) -> ScoreInputs:
        """Return the inputs of a Score. queries: one for all documents, or one for each.

        max_tokens: a lower limit of a whole sequence than the model's. max_tokens_per_doc: of a document alone.
        instruction: what yes_no asks for. Raises QueryTooLongError; ValueError when the counts don't match.
        """
        if len(queries) not in (1, len(documents)) or not queries:
            raise ValueError(f"{len(queries)} queries and {len(documents)} documents make no pairs")
        limit = min(self.text.max_tokens, max_tokens or self.text.max_tokens)
        if method in ("late_interaction", "cosine"):
            return self._apart(queries, documents, limit, max_tokens_per_doc)
        if method == "cross_encoder":
            return self._joined(queries, documents, limit, max_tokens_per_doc)
        return self._asked(queries, documents, limit, max_tokens_per_doc, instruction or DEFAULT_INSTRUCTION)

    def _joined(self, queries: Sequence[str], documents: Sequence[str], limit: int, most: int | None) -> ScoreInputs:
        """[CLS] query [SEP] document [SEP], as the tokenizer's own template says."""
        join = self._join
        encoded = [self._plain(query) for query in queries]
        ids, seconds, cut = [], [], 0
        for index, document in enumerate(documents):
            query = encoded[index % len(encoded)]
            head = [*join.before, *query, *join.between]
            kept, lost = _cut(self._plain(document), len(head) + len(join.after), limit, most)
            ids.append([*head, *kept, *join.after])
            seconds.append(len(head) - (len(join.between) if join.typed == "between" else 0))
            cut += lost
        return ScoreInputs(documents=ids, second_from=[] if join.typed == "none" else seconds, cut_tokens=cut)

    def _asked(self, queries: Sequence[str], documents: Sequence[str], limit: int, most: int | None,
               instruction: str) -> ScoreInputs:
        """The question whether a document answers a query, ready for the answer's first token."""
        before = self._tokenizer.encode(YES_NO_PREFIX, add_special_tokens=False)
        after = self._tokenizer.encode(YES_NO_SUFFIX, add_special_tokens=False)
        ids, cut = [], 0
        for index, document in enumerate(documents):
            body = YES_NO_BODY.format(instruction=instruction, query=queries[index % len(queries)])
            whole = self._tokenizer.encode_plain(body + document)  # one text: its tokens may cross the border
            own = len(self._tokenizer.encode_plain(body))
            kept, lost = _cut(whole[own:], len(before) + own + len(after), limit, most)
            ids.append([*before, *whole[:own], *kept, *after])
            cut += lost
        return ScoreInputs(documents=ids, cut_tokens=cut)

    def _apart(self, queries: Sequence[str], documents: Sequence[str], limit: int, most: int | None) -> ScoreInputs:
        """Each text by itself, behind the model's prompts for queries and documents where it has such."""
        names = self.text.prompt_names
        asked = self.text.encode(queries, prompt_name=next((n for n in QUERY_PROMPTS if n in names), None),
                                 max_tokens=limit)
        if asked.cut_tokens:
            raise QueryTooLongError(asked.cut_tokens + max(map(len, asked.ids)), limit)
        found = self.text.encode(documents, prompt_name=next((n for n in DOCUMENT_PROMPTS if n in names), None),
                                 max_tokens=min(limit, most or limit))
        return ScoreInputs(documents=found.ids, queries=asked.ids, cut_tokens=found.cut_tokens)

    def _plain(self, text: str) -> list[int]:
        return self._tokenizer.encode(text.lower() if self.text.spec.lower_case else text, add_special_tokens=False)

    @functools.cached_property
    def _join(self) -> _Join:
        return _read_join(self._tokenizer)


def _cut(document: list[int], taken: int, limit: int, most: int | None) -> tuple[list[int], int]:
    """Return (what of the document fits, how many tokens don't). Raises QueryTooLongError when nothing would fit."""
    room = limit - taken
    if room < min(1, len(document)):
        raise QueryTooLongError(taken, limit)
    kept = document[: min(room, most or room)]
    return kept, len(document) - len(kept)


def _read_join(tokenizer: TextTokenizer) -> _Join:
    """Read from a sample how the tokenizer joins two texts. Raises ArtifactError when it doesn't keep their order."""
    sample = tokenizer.backend.encode("a", "b", add_special_tokens=True)
    ids, sides, types = sample.ids, sample.sequence_ids, sample.type_ids
    first = [index for index, side in enumerate(sides) if side == 0]
    second = [index for index, side in enumerate(sides) if side == 1]
    if not first or not second or first[-1] > second[0]:
        raise ArtifactError("tokenizer.json", "does not join a query and a document one behind the other")
    between = ids[first[-1] + 1 : second[0]]
    typed: Literal["none", "between", "second"] = "none"
    if 1 in types:
        typed = "second" if types.index(1) >= second[0] else "between"
    return _Join(ids[: first[0]], between, ids[second[-1] + 1 :], typed)
