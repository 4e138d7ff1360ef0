"""Roles: what a parameter is for, read from its name, as people name such things."""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

__all__ = ["call_role", "init_role", "is_mapping"]

# a name is compared in lower case, without underscores at its ends; the first role that has it wins
INIT: Mapping[str, str] = {
    "heads": (
        "h heads head num_heads n_heads n_head nhead nb_heads nheads num_head heads_num number_of_heads "
        "head_num num_attention_heads n_attention_heads attention_heads attn_heads n_attn_heads "
        "encoder_attention_heads decoder_attention_heads head_count heads_count head_number nh no_heads "
        "no_of_heads k_heads q_heads num_q_heads n_q_heads num_query_heads n_query_heads query_heads n_h hn "
        "numheads nr_heads total_num_heads n_heads_q heads_q num_attn_heads nhd no_head attention_head_num "
        "n_attn_head encoder_heads 头数 注意力头数 头数量"
    ),
    "key_heads": (
        "num_kv_heads n_kv_heads num_key_value_heads kv_heads n_kv_head nkv n_head_kv n_kv kv_head num_kv_head "
        "num_k_heads n_local_kv_heads num_kv kvheads heads_kv n_heads_kv kv_head_num hkv h_kv n_key_value_heads "
        "n_query_groups num_query_groups n_kv_groups num_kv_groups num_groups n_groups query_groups kv_groups "
        "n_local_heads 键值头数 分组数"
    ),
    "head_width": (
        "d_k dk head_dim dim_head d_head head_size key_dim qkv_dim head_width dim_k dh d_kv d_qk qk_dim "
        "head_features dim_per_head attention_head_size depth_k per_head_dim headdim dim_heads size_per_head "
        "head_channels num_head_channels attention_head_dim c_hidden d_q k_dim dkey d_key head_dims dim_qk hd "
        "qk_head_dim query_key_dim"
    ),
    "value_head_width": "d_v dv v_dim value_dim dim_v v_head_dim dim_value d_value head_dim_v value_head_dim",
    "width": (
        "d_model model_dim embed_dim emb_dim embed_size emb_size embedding_dim embedding_size hidden_size "
        "hidden_dim num_hiddens n_embd dim dim_model d c c_in c_m c_z in_dim in_features d_in d_out units width "
        "channels features hidden size n_state n_embed nembed model_size embed n_units hid_dim d_embed emb "
        "input_dim output_dim out_dim d_hidden dims d_hid feature_dim n_hidden feat_dim model_width "
        "hidden_units d_emb embeddim hiddensize in_channels in_ch inplanes num_features d_embedding "
        "embeddings_dim token_dim input_size out_features attn_dim attention_dim inner_dim proj_dim "
        "projection_dim num_channels nf state_dim n_feat n_features n_model dmodel dim_in dim_out hiddens "
        "latent_dim dim_latent q_dim query_dim dim_q dim_query output_size out_channels num_units e e_dim "
        "embedding d_x x_dim hs hid_size embd_dim embed_dims n_dim n_dims ndim dim_input dim_output input_dims "
        "output_dims input_channels planes nhid d_inner emb_d encoder_dim enc_dim enc_hid_dim decoder_dim "
        "dec_dim dec_hid_dim embedding_dimension hidden_dimension dimension n_channels d_attn query_size "
        "key_size value_size d_query kdim vdim context_dim memory_dim cross_dim key_in_dim cross_attention_dim "
        "kv_dim k_size q_size v_size source_dim target_dim src_dim tgt_dim encoder_width context_size_dim "
        "d_context ctx_dim dim_context k_channels v_channels key_channels value_channels d_cross d_kv_in d_y "
        "y_dim embedding_length query_in_dim query_features key_features value_features embeds nfeat "
        "embedding_channels hidden_channels out_ch dim_y dim_x dim_kv d_cond cond_dim 维度 模型维度 隐藏维度 嵌入维度"
    ),
    "length": (
        "block_size context_length max_len max_seq_len max_length max_position_embeddings n_ctx max_seq_length "
        "maxlen ctx_len seq_len seq_length sequence_length num_patches n_patches context_size max_context "
        "ctx_size max_positions n_tokens num_tokens seqlen max_sequence_length n_positions max_t context_window "
        "len_seq step_dim time_steps timesteps n_steps num_steps l t n num_positions max_position "
        "max_relative_position tgt_len max_tokens ctx_length sequence_len max_l"
    ),
    "window": (
        "window window_size win_size ws w local_window chunk_size bucket_size sliding_window window_len "
        "block_len win block"
    ),
    "image": "img_size image_size resolution input_resolution feat_size fmap_size spatial_size",
    "batch": "batch_size bsz bs max_batch_size max_bsz batch max_batch",
    "kernel": "kernel_size kernel ksize kernel_width conv_kernel conv_kernel_size",
    "patch": "patch_size patch p_size patch_dim",
    "vocabulary": (
        "vocab_size vocab n_vocab num_embeddings vocabulary_size ntoken n_token src_vocab_size tgt_vocab_size "
        "src_vocab tgt_vocab trg_vocab_size num_vocab ntokens input_vocab_size target_vocab_size vocab_len"
    ),
    "dropout": (
        "dropout p drop dropout_rate attn_drop proj_drop attn_dropout attn_pdrop resid_pdrop dropout_p "
        "drop_rate attention_dropout resid_dropout p_dropout attn_drop_rate proj_drop_rate drop_prob "
        "dropout_prob pdrop attention_probs_dropout_prob hidden_dropout_prob dropout_ratio rate embd_pdrop "
        "drop_path out_dropout ff_dropout proj_dropout output_dropout residual_dropout prob_dropout feat_drop "
        "drop_p keep_prob_drop pe_dropout 丢弃率 丢弃概率"
    ),
    "config": ("config cfg args conf params hparams opt opts hp configs configuration model_args model_config hyper"),
    "number": (
        "temperature scale alpha eps gamma beta negative_slope base init_range epsilon theta rope_theta temp "
        "tau scaling slope momentum std softmax_scale layer_norm_eps rms_norm_eps norm_eps initializer_range "
        "softcap"
    ),
    "rotary": "rotary_dim rot_dim rope_dim rotary_ndims",
    "chunk": "chunk_size_feed_forward",
    "device": "device dev",
    "activation": "act_layer act activation act_fn activation_layer nonlinearity",
    "norm": "norm_layer norm norm_cls",
    "dtype": "dtype param_dtype",
    "classes": "num_classes n_classes n_class num_labels n_cls num_outputs n_out",
    "feed_forward": (
        "d_ff dff dim_feedforward ff_dim mlp_dim ffn_dim intermediate_size dim_ff d_ffn ffn_hidden hidden_ff "
        "pf_dim ffn_num_hiddens ff_hidden mlp_hidden ff_size feedforward_dim feed_forward_dim d_mlp"
    ),
    "layers": (
        "num_layers n_layers n_layer layers depth depths num_blocks n_blocks nlayers num_hidden_layers num_layer n_blk"
    ),
    "place": "layer_idx layer_id layer_index idx layer layer_number layer_num i index block_idx",
    "bias": "bias qkv_bias use_bias attn_bias attention_bias proj_bias qk_bias add_bias out_bias",
}
CALL: Mapping[str, str] = {
    "query": (
        "latents latent q query queries query_states x_q xq q_in target tgt trg dst q_x input_q query_layer "
        "q_input query_input decoder_hidden dec_hidden queries_in qs from_tensor inputs_q hidden_states_q "
        "tgt_seq dec_in dec_x decoder_states decoder_input dec_states query_tensor q_tensor from_seq"
    ),
    "key": (
        "k key keys key_states x_k xk k_in memory mem context ctx encoder_hidden_states encoder_output "
        "encoder_outputs enc_out enc_output cond kv key_value key_value_states y cross k_x input_k key_layer "
        "x_kv xkv kv_x to_tensor other k_input key_input enc enc_hidden encoder_out xa encoder_states "
        "enc_states cross_x kv_in context_x source ks inputs_kv enc_x keys_values kv_input kv_states m z_kv "
        "conditioning encoder_input text_emb text cond_emb key_tensor k_tensor to_seq memory_bank annotations"
    ),
    "value": (
        "v value values value_states x_v xv v_in v_x input_v value_layer v_input value_input vs value_tensor "
        "v_tensor val vals"
    ),
    "mask": (
        "pad pads padding "
        "mask attn_mask attention_mask src_mask tgt_mask trg_mask padding_mask pad_mask key_padding_mask "
        "memory_mask causal_mask key_mask context_mask masks src_key_padding_mask q_mask kv_mask seq_mask "
        "tgt_key_padding_mask look_ahead_mask attn_masks m_mask dec_mask enc_mask slf_attn_mask msk "
        "self_attn_mask key_pad_mask x_mask encoder_mask cross_mask cross_attention_mask combined_mask "
        "memory_key_padding_mask encoder_padding_mask decoder_mask maskings valid_mask input_mask token_mask "
        "enc_dec_mask present keep ignore"
    ),
    "bias": (
        "attn_bias attention_bias bias rel_pos_bias position_bias rel_bias pos_bias alibi pair_bias alibi_bias "
        "relative_bias"
    ),
    "lengths": (
        "valid_lens valid_len lengths lens seq_lens seq_lengths length valid_length valid_lengths x_lens "
        "src_lens src_len key_lens key_lengths"
    ),
    "frequencies": "freqs_cis freqs rope rotary freqs_complex rotary_emb rope_cache freq_cis",
    "cosine": "cos freqs_cos cos_cached rope_cos",
    "sine": "sin freqs_sin sin_cached rope_sin",
    "cosine_sine": "position_embeddings cos_sin rope_cos_sin rotary_pos_emb",
    "positions": "position_ids positions input_pos pos_ids cache_position pos_idx",
    "encoding": (
        "pos query_pos pos_emb pos_embed position_embedding pos_encoding key_pos pe query_pos_emb pos_embedding"
    ),
    "cache": (
        "cache past_kv past kv_cache past_key_value past_key_values layer_past layer_cache past_kvs "
        "memory_states mems mem_states memories incremental_state prev state kvcache present k_cache v_cache past_state"
    ),
    "start": "start_pos start pos_start offset start_idx cur_pos curr_pos position",
    "ids": (
        "input_ids idx ids tokens token_ids src_tokens input_tokens src_ids tgt_ids x_ids text_ids labels "
        "decoder_input_ids decoder_ids label_ids target_ids"
    ),
    "segments": (
        "seq_id seq_ids sequence_id sequence_ids segment_id segment_ids seg_ids seg_id doc_id doc_ids document_ids "
        "chain_id chain_ids"
    ),
    "boundaries": "cu_seqlens cu_seq_lens cu_seqlens_q cu_seqlens_k cu_window_seqlens cu_lens",
    "limit": "max_seqlen max_seq_len max_seqlen_q max_seqlen_k max_len max_length",
    "adjacency": "adj adjacency adj_matrix adj_mat a adj_m",
    "edges": "edge_index edges",
    "weight": (
        "w_q w_k w_v w_o wq wk wv wo weight_q weight_k weight_v weight_o w_query w_key w_value w_out q_proj "
        "k_proj v_proj o_proj out_proj q_weight k_weight v_weight o_weight out_weight w_output wquery wkey "
        "wvalue w_0 q_proj_weight k_proj_weight v_proj_weight o_proj_weight out_proj_weight"
    ),
    "packed_weight": "w_qkv wqkv qkv_weight in_proj_weight c_attn_weight",
    "vector": "b_q b_k b_v b_o bq bk bv bo out_bias q_bias k_bias v_bias o_bias out_proj_bias",
    "heads": INIT["heads"],
    "key_heads": INIT["key_heads"],
    "head_width": INIT["head_width"],
    "width": "d_model model_dim embed_dim emb_dim hidden_size hidden_dim n_embd dim",
    "dropout": f"{INIT['dropout']} dropout_layer drop_layer",
    "flag": (
        "causal is_causal need_weights return_attention output_attentions use_cache training return_weights "
        "train return_attn average_attn_weights return_attn_weights masked deterministic return_scores verbose "
        "inference"
    ),
    "scale": "scale scaling temperature temp scale_factor scaling_factor sm_scale softmax_scale",
    "slopes": "slopes slope alibi_slopes m_slopes",
    "rows": "height num_rows n_rows img_h h_size rows",
    "columns": "width num_cols n_cols img_w w_size w cols columns",
    "grid": "grid size hw hw_shape spatial_shape spatial_size x_size input_size feat_size grid_size resolution hw_size",
}


def _table(roles: Mapping[str, str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for role, names in roles.items():
        for name in names.split():
            out.setdefault(name, role)
    return out


INIT_NAMES, CALL_NAMES = _table(INIT), _table(CALL)


# what a name that is in no table most likely is, by what it holds
INIT_PARTS = (
    (
        r"pct|percent|(^|_)frac|(^|_)partial|proportion|_scalar$|_temperature$|(attn|attention|score|logit)s?_scale$",
        "number",
    ),
    # the number of a token that is compared with others
    (r"(^|_)(pad(ding)?|[ebs]os|sep|cls|unk|blank)_?(token|tok)?_?(id|idx|index)$", "token"),
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
    (r"(img|image)(?!_?(dim|features?|channels?|embed\w*|hidden))", "image"),
    (r"patch", "patch"),
    (r"config|cfg", "config"),
    (r"bias", "bias"),
    (r"dim|hidden|embed|width|channel|feature|filters|units|size|model|(^|_)d(_|$)", "width"),
)


CALL_PARTS = (
    (r"^(is|use|return|need|output|has)_|_is_", "flag"),
    # it weighs whole heads and hides no key
    (r"heads?_?mask", "none"),
    (r"mask_?bias|bias_?mask", "bias"),
    (r"mask|m[aá]sc|masque|掩码|遮罩|掩膜|屏蔽|(^|_)padding($|_)|(^|_)pad$", "mask"),
    (r"有效长度|长度$", "lengths"),
    (r"(valid|seq|src|keys?|hist|history)_?len|(^|_)len(gth)?s$", "lengths"),
    (r"^(query|memory|context|encoder|target|tgt|value)_(len(gth)?|size|count)$", "limit"),
    (r"^(past|prefix|prompt)_(len(gth)?|size|steps|count)$|^(n|num)_(past|prefix|prompt)$", "count"),
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
    role = table.get(plain) or table.get(plain.replace("_", ""))
    if role:
        return role
    return next((role for pattern, role in parts if re.search(pattern, plain)), "")
