"""Size words: the meanings of words for sizes in comments about shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwise.tracing.steps import Symbol

__all__ = ["LENGTHS", "ROLES", "meanings", "may_mean"]

LENGTHS = ("queries", "keys")
_BATCH, _HEADS, _KEY_HEADS = ("batch",), ("heads", "key_heads"), ("key_heads",)
_HEAD_WIDTH, _WIDTH = ("head_width", "value_width"), ("width", "parameter", "value_width")

# meanings and their words in lower case; a word may be in several rows
_TABLE: tuple[tuple[tuple[str, ...], str], ...] = (
    (_BATCH, "b bs bsz bz n batch batches batch_size batchsize nbatches num_batches 批量 批大小 批次 批量大小"),
    (
        LENGTHS,
        "l s t n m i j seq seq_len seqlen seq_length sequence seq_size sequence_length length len tokens num_tokens "
        "n_tokens token time steps block_size context n_ctx ctx x_len max_len 序列长度 长度 序列",
    ),
    (("queries",), "lq tq sq nq q_len qlen query_len tgt tgt_len num_queries n_queries 查询的个数 查询个数 查询长度"),
    (
        ("keys",),
        "lk tk sk nk k_len klen kv_len key_len src src_len num_keys n_keys num_kvpairs kv_seq_len 键的个数 键个数 "
        "键值对个数 “键－值”对的个数 键长度",
    ),
    (_HEADS, "h n nh heads head n_head n_heads num_heads nhead nheads num_attention_heads 头数 头 头的个数"),
    (_KEY_HEADS, "hk hkv kv_heads n_kv_head n_kv_heads num_kv_heads num_key_value_heads g"),
    (
        _HEAD_WIDTH,
        "d k v dk dv d_k d_v dh d_h hd hs dim head_dim headdim head_size head_width dim_head d_head dim_per_head "
        "head_features depth size_per_head dim_k dim_v 每头维度 头维度",
    ),
    (
        _WIDTH,
        "d c e h dim d_model dmodel model_dim embed_dim embed emb emb_dim embedding_dim hidden hidden_dim hidden_size "
        "num_hiddens n_embd channels features feature width inner_dim inner 模型维度 隐藏维度 特征维度 嵌入维度",
    ),
)  # fmt: skip

# words for queries, keys and values in prose and code
ROLES: Mapping[str, frozenset[str]] = {
    "queries": frozenset(("q", "query", "queries", "wq", "查询")),
    "keys": frozenset(("k", "key", "keys", "wk", "键")),
    "values": frozenset(("v", "value", "values", "wv", "值")),
}


def meanings(word: str) -> frozenset[str]:
    """The possible meanings of a word, as in Symbol.meaning; empty: unknown.

    >>> sorted(meanings("T")), sorted(meanings("num_heads")), sorted(meanings("apple"))
    (['keys', 'queries'], ['heads', 'key_heads'], [])
    """
    plain = word.lower().strip()
    return frozenset(each for row, words in _TABLE if plain in words.split() for each in row)


def may_mean(word: str, symbols: Sequence[Symbol]) -> frozenset[str] | None:
    """The symbols that a word may be, by the table and by their names in the code; None: any."""
    by_code = frozenset(symbol.name for symbol in symbols if symbol.said and symbol.said == word)
    possible = meanings(word)
    # without a separate key length there is only one length
    if possible & {*LENGTHS} and not any(symbol.meaning == "keys" for symbol in symbols):
        possible |= {"queries"}
    names = by_code | {symbol.name for symbol in symbols if symbol.meaning in possible}
    return names or None
