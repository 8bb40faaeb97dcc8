"""Tiny text encoders of transformers with a classification head."""

from collections.abc import Collection
from typing import Any

from architectures_record import Architecture, Kind, from_transformers

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 40,
    "num_labels": 3,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
_XLM: dict[str, Any] = {
    "emb_dim": 16,
    "n_layers": 2,
    "n_heads": 2,
    "n_words": 40,
    "max_position_embeddings": 40,
    "num_labels": 3,
    "pad_index": 0,
    "pad_token_id": 0,
}
_DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
_GROUPED = dict.fromkeys(("q", "k", "v", "intermediate", "output"), 2)

#: name -> (stem of the class names, settings beside SIZES)
_ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ALBERT": ("Albert", {"embedding_size": 8}),
    "BERT": ("Bert", {}),
    "BigBird": ("BigBird", {"attention_type": "original_full"}),
    "CamemBERT": ("Camembert", {}),
    "CANINE": (
        "Canine",
        {
            "num_hash_buckets": 32,
            "num_hash_functions": 2,
            "downsampling_rate": 2,
            "upsampling_kernel_size": 2,
            "local_transformer_stride": 8,
        },
    ),
    "ConvBERT": ("ConvBert", {"embedding_size": 16, "conv_kernel_size": 3, "head_ratio": 2}),
    "Data2Vec": ("Data2VecText", {}),
    "DeBERTa": ("Deberta", _DISENTANGLED),
    "DeBERTa-v2": ("DebertaV2", _DISENTANGLED),
    "ELECTRA": ("Electra", {"embedding_size": 16}),
    "ERNIE": ("Ernie", {}),
    "ESM-2": (
        "Esm",
        {"position_embedding_type": "rotary", "token_dropout": True, "mask_token_id": 4},
    ),
    "ESM-C": ("Esmc", {}),
    "EuroBERT": ("EuroBert", {"num_key_value_heads": 1, "head_dim": 8}),
    "FNet": ("FNet", {}),
    "GTE": ("Gte", {}),
    "I-BERT": ("IBert", {}),
    "Jina embeddings v3": ("JinaEmbeddingsV3", {}),
    "LayoutLM": ("LayoutLM", {"max_2d_position_embeddings": 20}),
    "LayoutLMv3 (text)": (
        "LayoutLMv3",
        {
            "coordinate_size": 2,
            "shape_size": 4,
            "max_2d_position_embeddings": 20,
            "visual_embed": False,
        },
    ),
    "LiLT": (
        "Lilt",
        {"hidden_size": 24, "max_2d_position_embeddings": 20, "channel_shrink_ratio": 2},
    ),
    "Longformer": ("Longformer", {"attention_window": 4}),
    "LUKE": ("Luke", {"entity_vocab_size": 10, "entity_emb_size": 8}),
    "MarkupLM": (
        "MarkupLM",
        {
            "max_xpath_tag_unit_embeddings": 8,
            "max_xpath_subs_unit_embeddings": 8,
            "tag_pad_id": 6,
            "subs_pad_id": 7,
            "xpath_unit_hidden_size": 4,
            "max_depth": 3,
        },
    ),
    "Megatron-BERT": ("MegatronBert", {}),
    "MobileBERT": (
        "MobileBert",
        {"embedding_size": 8, "intra_bottleneck_size": 8, "num_feedforward_networks": 2},
    ),
    "ModernBERT": ("ModernBert", {}),
    "MPNet": ("MPNet", {}),
    "Nomic BERT": ("NomicBert", {}),
    "Nystromformer": (
        "Nystromformer",
        {"num_landmarks": 4, "segment_means_seq_len": 4, "conv_kernel_size": 3},
    ),
    "RemBERT": ("RemBert", {"input_embedding_size": 8, "output_embedding_size": 8}),
    "RoBERTa": ("Roberta", {}),
    "RoBERTa-PreLayerNorm": ("RobertaPreLayerNorm", {}),
    "RoCBert": ("RoCBert", {"shape_vocab_size": 10, "pronunciation_vocab_size": 10}),
    "RoFormer": ("RoFormer", {}),
    "SqueezeBERT": (
        "SqueezeBert",
        {"embedding_size": 16, **{f"{name}_groups": groups for name, groups in _GROUPED.items()}},
    ),
    "TAPAS": ("Tapas", {}),
    "UltraBERT": ("Ultrabert", {}),
    "X-MOD": ("Xmod", {"languages": ["en_XX"], "default_language": "en_XX"}),
    "XLM-RoBERTa": ("XLMRoberta", {}),
    "XLM-RoBERTa-XL": ("XLMRobertaXL", {}),
    "YOSO": ("Yoso", {}),
}

#: name -> (stem of the class names, all settings)
_OWN_SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "DistilBERT": (
        "DistilBert",
        {
            "dim": 16,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 24,
            "vocab_size": 40,
            "num_labels": 3,
            "max_position_embeddings": 40,
            "pad_token_id": 0,
        },
    ),
    "FlauBERT": ("Flaubert", _XLM),
    "Funnel": (
        "Funnel",
        {
            "block_sizes": [1, 1],
            "d_model": 16,
            "n_head": 2,
            "d_head": 8,
            "d_inner": 24,
            "vocab_size": 40,
            "num_labels": 3,
            "pad_token_id": 0,
        },
    ),
    "Perceiver": (
        "Perceiver",
        {
            "num_latents": 4,
            "d_latents": 16,
            "d_model": 12,
            "num_blocks": 1,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 2,
            "vocab_size": 40,
            "max_position_embeddings": 40,
            "num_labels": 3,
        },
    ),
    "Reformer": (
        "Reformer",
        {
            "hidden_size": 16,
            "num_attention_heads": 2,
            "attention_head_size": 8,
            "feed_forward_size": 24,
            "attn_layers": ["local", "local"],
            "local_attn_chunk_length": 4,
            "axial_pos_shape": [4, 10],
            "axial_pos_embds_dim": [8, 8],
            "max_position_embeddings": 40,
            "vocab_size": 40,
            "num_labels": 3,
            "pad_token_id": 0,
            "is_decoder": False,
        },
    ),
    "XLM": ("XLM", _XLM),
    "XLNet": (
        "XLNet",
        {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "vocab_size": 40}
        | {"num_labels": 3, "pad_token_id": 0},
    ),
}

#: what computes in float32 inside, whatever its type: a norm, a router, or attention weights
CASTS = frozenset({"DeBERTa", "ESM-2", "EuroBERT", "Funnel", "Longformer", "MarkupLM"})
CASTS |= {"FlauBERT", "ModernBERT", "UltraBERT", "XLM"}
#: whose own code overflows in float64: its mask is float64's lowest number in float32
SINGLE = frozenset({"CANINE"})


def text(
    kind: Kind,
    table: dict[str, tuple[str, dict[str, Any]]],
    casts: Collection[str] = CASTS,
    head: str = "Sequence",
) -> list[Architecture]:
    """One record per row of `table`: name -> (stem of the class names, settings)."""
    return [
        Architecture(
            name=name,
            source="transformers",
            kind=kind,
            make=from_transformers(
                stem, head, settings, f"{stem}ForQuestionAnswering" if head == "Answering" else None
            ),
            casts=name in casts,
            single=name in SINGLE,
            beside=name == "T5Gemma",
        )
        for name, (stem, settings) in table.items()
    ]


_SIZED = {name: (stem, {**SIZES, **more}) for name, (stem, more) in _ENCODERS.items()}
_TABLE = dict(sorted({**_SIZED, **_OWN_SIZES}.items()))
ENCODERS = text("encoders", _TABLE)
#: those that transformers labels no tokens with
_WITHOUT_LABELS = frozenset({"Perceiver", "Reformer", "TAPAS"})
#: encoders that answer questions by the start and the end in a context
ANSWERS = text(
    "encoders",
    {
        name: (stem, {**settings, "num_labels": 2})
        for name, (stem, settings) in _TABLE.items()
        if name
        in ("ALBERT", "BERT", "DeBERTa-v2", "DistilBERT", "ELECTRA", "Funnel", "MPNet", "RoBERTa")
    },
    head="Answering",
)
#: the same encoders with a label for every token
TOKEN_LABELS = text(
    "encoders",
    {name: row for name, row in _TABLE.items() if name not in _WITHOUT_LABELS},
    head="Token",
)
