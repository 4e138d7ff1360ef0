"""Roles: what a parameter is for, read from its name, as people name such things."""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from headwise.calls.role_names import CALL, INIT

__all__ = ["call_role", "init_role", "is_mapping"]


def _table(roles: Mapping[str, str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for role, names in roles.items():
        for name in names.split():
            out.setdefault(name, role)
    return out


INIT_NAMES, CALL_NAMES = _table(INIT), _table(CALL)
# what a name that is in no table most likely is, by what it holds
INIT_PARTS = (
    (r"batch", "batch"),
    (r"kernel", "kernel"),
    (r"expansion|factor|ratio|mult($|i)|reduction", "factor"),
    (r"drop", "dropout"),
    (r"(^|_)rank$", "rank"),
    (r"kv.*head|head.*kv|key_?value.*head|(quer|kv).*group", "key_heads"),
    (r"head.*(dim|size|width)|(dim|size|width).*head|(dim|tama).*cabe[zcç]a", "head_width"),
    (r"键值头|分组数", "key_heads"),
    (r"(每|单)?头(的)?(维|宽|大小)|每个?头", "head_width"),
    (r"头数|头的?数|注意力头|多头|头$", "heads"),
    (r"词表|词汇|词典", "vocabulary"),
    (r"最大长度|序列长度|上下文长度|最大序列", "length"),
    (r"窗口", "window"),
    (r"前馈|中间", "feed_forward"),
    (r"层数", "layers"),
    (r"丢弃|失活|暂退", "dropout"),
    (r"配置", "config"),
    (r"偏置", "bias"),
    (r"维度?|宽度|隐藏|嵌入|特征|通道|模型", "width"),
    (r"heads?($|_)|nhead|cabe[zcç]as?|k[oö]e?pfe?|t[eê]tes|teste($|_)", "heads"),
    (r"vocab|(^|_)(num|n)_?(items?|tok|words?)$|items?_(num|count)", "vocabulary"),
    (r"(seq|ctx|context|max).*len|max.*(pos|seq|tok)|block_size|(^|_)length$", "length"),
    (r"window", "window"),
    (r"(ff|feedforward|intermediate|mlp)", "feed_forward"),
    (r"layers|(^|_)(n|nb|num|number_of)_?(\w+_)?(blocks|stacks)($|_)", "layers"),
    (r"class|label", "classes"),
    (r"(img|image)", "image"),
    (r"patch", "patch"),
    (r"config|cfg", "config"),
    (r"bias", "bias"),
    (r"dim|hidden|embed|width|channel|feature|filters|units|size|model|(^|_)d(_|$)", "width"),
)
CALL_PARTS = (
    (r"^(is|use|return|need|output|has)_|_is_", "flag"),
    (r"mask_?bias|bias_?mask", "bias"),
    (r"mask|m[aá]sc|masque|掩码|遮罩|掩膜|屏蔽|(^|_)padding($|_)|(^|_)pad$", "mask"),
    (r"有效长度|长度$", "lengths"),
    (r"(valid|seq|src|key)_?len|(^|_)len(gth)?s$", "lengths"),
    (r"cache|past|缓存", "cache"),
    (r"bias|偏置", "bias"),
    (r"freq|rotary|rope", "frequencies"),
    (r"(^|_)ids$|tokens", "ids"),
    (r"(^|_)pos(ition)?_?(enc|emb)", "encoding"),
    (r"(^|_)(edge|pair)s?_(feat|attr|emb|rep|bias|act)", "pairs"),
    (r"查询|询问", "query"),
    (r"^键|键(向量|张量|输入|矩阵)?$|记忆|编码器输出|上下文", "key"),
    (r"^值|值(向量|张量|输入|矩阵)?$", "value"),
    (r"(^|_)(quer|tgt|target|consult|abfrage|requ[eê]te|pergunta)", "query"),
    (r"(^|_)(key|enc|memory|context|cond|kv|clave|chave|schl[uü]|cl[eé]s?($|_))", "key"),
    (r"(^|_)(value|valor|valeur|werte?($|_))", "value"),
    (r"head", "heads"),
    (r"pos", "encoding"),
)


@lru_cache(maxsize=4096)
def init_role(name: str) -> str:
    """What a parameter of a constructor is for; "": its name does not tell."""
    return _role(name, INIT_NAMES, INIT_PARTS)


@lru_cache(maxsize=4096)
def call_role(name: str) -> str:
    """What a parameter of a call is for; "": its name does not tell, as that of `x`."""
    if name in ("Q", "K", "V"):
        return {"Q": "query", "K": "key", "V": "value"}[name]
    return _role(name, CALL_NAMES, CALL_PARTS)


def is_mapping(annotation: Any) -> bool:
    """Whether an argument is said to be a dictionary, or nothing, which several layers may share.

    >>> is_mapping(dict), is_mapping(dict[str, int] | None), is_mapping("dict"), is_mapping(dict | int)
    (True, True, False, False)
    """
    if get_origin(annotation) in (Union, UnionType):
        return all(is_mapping(each) for each in get_args(annotation) if each is not type(None))
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, dict | UserDict)


def _role(name: str, table: dict[str, str], parts: tuple[tuple[str, str], ...]) -> str:
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip("_").lower()
    found = table.get(plain) or table.get(plain.replace("_", ""))
    if found:
        return found
    return next((role for pattern, role in parts if re.search(pattern, plain)), "")
