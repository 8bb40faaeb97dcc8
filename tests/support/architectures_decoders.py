"""Tiny decoders and encoder-decoders of transformers: their head reads the last token."""

from typing import Any

from architectures_text import SIZES, text

_GROUPED_QUERY = {**SIZES, "num_key_value_heads": 1, "head_dim": 8}
_EXPERTS = {
    **_GROUPED_QUERY,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "decoder_sparse_step": 1,
    # the grouped product of the default implementation knows no float64
    "experts_implementation": "eager",
}
_LATENT = {
    **SIZES,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 8,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "experts_implementation": "eager",
}
_DELTA_NET = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 2,
    "layer_types": ["linear_attention", "full_attention"],
}
_GPT = {
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 40,
    "vocab_size": 40,
    "num_labels": 3,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
_SLIDING = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
_MAMBA = {"mamba_d_state": 4, "mamba_d_conv": 2, "mamba_dt_rank": 4, "use_mamba_kernels": False}

_SEQ2SEQ: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "vocab_size": 40,
    "num_labels": 3,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 2,
}
_T5: dict[str, Any] = {
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "vocab_size": 40,
    "num_labels": 3,
    "pad_token_id": 0,
    "eos_token_id": 3,
    "decoder_start_token_id": 0,
}
_T5_GEMMA = {
    "encoder": _GROUPED_QUERY,
    "decoder": {**_GROUPED_QUERY, "is_decoder": True, "cross_attention_hidden_size": 16},
}

#: of Llama's shape: rotary positions, grouped queries, a gated MLP
_GROUPED_QUERY_STEMS = {
    "Arcee": "Arcee",
    "Doge": "Doge",
    "EXAONE 4": "Exaone4",
    "Gemma": "Gemma",
    "Gemma 2": "Gemma2",
    "GLM": "Glm",
    "GLM-4": "Glm4",
    "Helium": "Helium",
    "Hunyuan": "HunYuanDenseV1",
    "Llama": "Llama",
    "Ministral": "Ministral",
    "Ministral 3": "Ministral3",
    "Mistral": "Mistral",
    "ModernBERT decoder": "ModernBertDecoder",
    "Nemotron": "Nemotron",
    "OLMo": "Olmo",
    "OLMo 2": "Olmo2",
    "OLMo 3": "Olmo3",
    "Persimmon": "Persimmon",
    "Phi": "Phi",
    "Phi-3": "Phi3",
    "Qwen2": "Qwen2",
    "Qwen3": "Qwen3",
    "Seed-OSS": "SeedOss",
    "SmolLM3": "SmolLM3",
    "StableLM": "StableLm",
    "Starcoder2": "Starcoder2",
}
_EXPERT_STEMS = {
    "GPT-OSS": "GptOss",
    "Mixtral": "Mixtral",
    "PhiMoE": "Phimoe",
    "Qwen2-MoE": "Qwen2Moe",
    "Qwen3-MoE": "Qwen3Moe",
}
_LATENT_STEMS = {
    "A.X K1": "AXK1",
    "DeepSeek-V3": "DeepseekV3",
    "MiniCPM3": "MiniCPM3",
    "Mistral 4": "Mistral4",
}

_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "BioGPT": ("BioGpt", SIZES),
    "BLOOM": ("Bloom", {**SIZES, "n_layer": 2, "n_head": 2}),
    "CTRL": ("CTRL", {**_GPT, "dff": 24}),
    "DeepSeek-V2": ("DeepseekV2", {**_LATENT, "topk_method": "greedy"}),
    "DiffLlama": ("DiffLlama", {**_GROUPED_QUERY, "num_key_value_heads": 2}),
    "Falcon": ("Falcon", {**SIZES, "new_decoder_architecture": False, "bias": True}),
    "Falcon (ALiBi)": ("Falcon", {**SIZES, "alibi": True, "parallel_attn": False}),
    "Gemma 3": ("Gemma3Text", {**_GROUPED_QUERY, **_SLIDING}),
    "GPT": ("OpenAIGPT", _GPT),
    "GPT-2": ("GPT2", _GPT),
    "GPT-BigCode": ("GPTBigCode", _GPT),
    "GPT-J": ("GPTJ", {**_GPT, "rotary_dim": 4}),
    "GPT-Neo": (
        "GPTNeo",
        {
            **SIZES,
            "num_layers": 2,
            "num_heads": 2,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
        },
    ),
    "GPT-NeoX": ("GPTNeoX", SIZES),
    "Hunyuan-MoE": ("HunYuanMoEV1", {**_EXPERTS, "moe_topk": 2}),
    "Jamba": (
        "Jamba",
        {**_EXPERTS, **_MAMBA, "attn_layer_period": 2, "attn_layer_offset": 1}
        | {"expert_layer_period": 2, "expert_layer_offset": 1},
    ),
    "JetMoE": ("JetMoe", {**_EXPERTS, "kv_channels": 8, "num_experts_per_tok": 1}),
    "MiniMax": (
        "MiniMax",
        {**_EXPERTS, "layer_types": ["linear_attention", "full_attention"], "block_size": 4},
    ),
    "MPT": ("Mpt", {**SIZES, "d_model": 16, "n_layers": 2, "n_heads": 2, "expansion_ratio": 2}),
    "OPT": ("OPT", {**SIZES, "ffn_dim": 24, "word_embed_proj_dim": 16}),
    "Qwen3-Next": ("Qwen3Next", {**_EXPERTS, **_DELTA_NET}),
    "Qwen3.5": ("Qwen3_5Text", {**_GROUPED_QUERY, **_DELTA_NET}),
    "Zamba": (
        "Zamba",
        {
            **_GROUPED_QUERY,
            **_MAMBA,
            "num_hidden_layers": 4,
            "layer_types": ["mamba", "hybrid", "mamba", "hybrid"],
            "attention_hidden_size": 32,
            "attention_head_dim": 16,
            "n_mamba_heads": 2,
        },
    ),
    "Zamba2": (
        "Zamba2",
        {
            **_GROUPED_QUERY,
            **_MAMBA,
            "num_hidden_layers": 3,
            "layers_block_type": ["mamba", "mamba", "hybrid"],
            "layer_types": ["mamba", "mamba", "hybrid"],
            "mamba_headdim": 8,
            "n_mamba_heads": 4,
            "mamba_ngroups": 1,
            "chunk_size": 4,
            "num_mem_blocks": 1,
            "adapter_rank": 4,
            "kv_channels": 8,
        },
    ),
}
_HEADS = {"mamba_d_state": 4, "mamba_d_conv": 2, "mamba_n_heads": 4, "mamba_d_head": 8}
_HEADS |= {"mamba_n_groups": 1, "mamba_chunk_size": 4, "mamba_expand": 2}
_SCAN = {**_GROUPED_QUERY, "state_size": 4, "expand": 2, "conv_kernel": 2}
_ONE_OF_TWO = ["mamba", "attention"]
#: language models that read their text by a recurrence; transformers has no classifier of these
SCANS: dict[str, tuple[str, dict[str, Any]]] = {
    "Bamba": ("Bamba", {**_GROUPED_QUERY, **_HEADS, "attn_layer_indices": [1]}),
    "Falcon H1": ("FalconH1", {**_GROUPED_QUERY, **_HEADS, "mamba_d_ssm": 32}),
    "Falcon Mamba": ("FalconMamba", {**_SCAN, "time_step_rank": 4}),
    "Granite 4": (
        "GraniteMoeHybrid",
        {**_EXPERTS, **_HEADS, "layer_types": _ONE_OF_TWO, "shared_intermediate_size": 16},
    ),
    "LFM2": (
        "Lfm2",
        {**_GROUPED_QUERY, "conv_L_cache": 2, "block_multiple_of": 8}
        | {"layer_types": ["conv", "full_attention"]},
    ),
    "Mamba": ("Mamba", {**_SCAN, "time_step_rank": 4}),
    "Mamba 2": ("Mamba2", {**_SCAN, "num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 4}),
    "OLMo hybrid": ("OlmoHybrid", {**_GROUPED_QUERY, **_DELTA_NET}),
    "RecurrentGemma": (
        "RecurrentGemma",
        {**_GROUPED_QUERY, "lru_width": 16, "attention_window_size": 4, "conv1d_width": 2}
        | {"block_types": ["recurrent", "attention"]},
    ),
    # its state is float32 whatever its type
    "xLSTM": (
        "xLSTM",
        {**_GROUPED_QUERY, "hidden_size": 32, "embedding_dim": 32, "num_blocks": 2, "num_heads": 2}
        | {"chunk_size": 16, "mode": "inference"},
    ),
}
_ENCODER_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "BART": ("Bart", _SEQ2SEQ),
    "BigBird-Pegasus": ("BigBirdPegasus", {**_SEQ2SEQ, "attention_type": "original_full"}),
    "mBART": ("MBart", _SEQ2SEQ),
    "MVP": ("Mvp", _SEQ2SEQ),
    "PLBart": ("PLBart", _SEQ2SEQ),
    "T5": ("T5", _T5),
    "mT5": ("MT5", _T5),
    "UMT5": ("UMT5", _T5),
    "T5Gemma": ("T5Gemma", {**_T5_GEMMA, "num_labels": 3, "vocab_size": 40, "pad_token_id": 0}),
}

_DECODERS |= {name: (stem, _GROUPED_QUERY) for name, stem in _GROUPED_QUERY_STEMS.items()}
_DECODERS |= {name: (stem, _EXPERTS) for name, stem in _EXPERT_STEMS.items()}
_DECODERS |= {name: (stem, _LATENT) for name, stem in _LATENT_STEMS.items()}

#: whose norms, scores and routers all stay in the type of the model
_PURE = {"BioGPT", "CTRL", "Falcon", "Falcon (ALiBi)", "GPT", "GPT-2", "GPT-BigCode"}
_PURE |= {"GPT-NeoX", "Nemotron", "OPT", "Persimmon", "Phi", "StableLM"}
_PURE |= {"Starcoder2"}
DECODERS = text("decoders", dict(sorted(_DECODERS.items())), _DECODERS.keys() - _PURE)
ENCODER_DECODERS = text("encoder-decoders", _ENCODER_DECODERS, {"T5", "T5Gemma", "mT5", "UMT5"})

#: name -> stem of the class names and settings, for heads of other kinds
DECODER_SETTINGS = dict(sorted(_DECODERS.items()))
ENCODER_DECODER_SETTINGS = _ENCODER_DECODERS
