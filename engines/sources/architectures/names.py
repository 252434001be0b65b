"""Names of tensors in each kind of file. Owns: the names that most architectures share. Needs: nothing. Never: shapes."""

from __future__ import annotations

GGUF_NAMES = {
    "embed.weight": "token_embd.weight",
    "layers.attn_norm.weight": "blk.{}.attn_norm.weight",
    "layers.attn.q_proj.weight": "blk.{}.attn_q.weight",
    "layers.attn.k_proj.weight": "blk.{}.attn_k.weight",
    "layers.attn.v_proj.weight": "blk.{}.attn_v.weight",
    "layers.attn.q_proj.bias": "blk.{}.attn_q.bias",
    "layers.attn.k_proj.bias": "blk.{}.attn_k.bias",
    "layers.attn.v_proj.bias": "blk.{}.attn_v.bias",
    "layers.attn.q_norm.weight": "blk.{}.attn_q_norm.weight",
    "layers.attn.k_norm.weight": "blk.{}.attn_k_norm.weight",
    "layers.attn.o_proj.weight": "blk.{}.attn_output.weight",
    "layers.attn_post_norm.weight": "blk.{}.post_attention_norm.weight",
    "layers.ffn_norm.weight": "blk.{}.ffn_norm.weight",
    "layers.ffn.gate_proj.weight": "blk.{}.ffn_gate.weight",
    "layers.ffn.up_proj.weight": "blk.{}.ffn_up.weight",
    "layers.ffn.down_proj.weight": "blk.{}.ffn_down.weight",
    "layers.ffn_post_norm.weight": "blk.{}.post_ffw_norm.weight",
    "final_norm.weight": "output_norm.weight",
    "head.weight": "output.weight",
}

FOLDER_NAMES = {
    "embed.weight": "model.embed_tokens.weight",
    "layers.attn_norm.weight": "model.layers.{}.input_layernorm.weight",
    "layers.attn.q_proj.weight": "model.layers.{}.self_attn.q_proj.weight",
    "layers.attn.k_proj.weight": "model.layers.{}.self_attn.k_proj.weight",
    "layers.attn.v_proj.weight": "model.layers.{}.self_attn.v_proj.weight",
    "layers.attn.q_proj.bias": "model.layers.{}.self_attn.q_proj.bias",
    "layers.attn.k_proj.bias": "model.layers.{}.self_attn.k_proj.bias",
    "layers.attn.v_proj.bias": "model.layers.{}.self_attn.v_proj.bias",
    "layers.attn.q_norm.weight": "model.layers.{}.self_attn.q_norm.weight",
    "layers.attn.k_norm.weight": "model.layers.{}.self_attn.k_norm.weight",
    "layers.attn.o_proj.weight": "model.layers.{}.self_attn.o_proj.weight",
    "layers.ffn_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
    "layers.ffn.gate_proj.weight": "model.layers.{}.mlp.gate_proj.weight",
    "layers.ffn.up_proj.weight": "model.layers.{}.mlp.up_proj.weight",
    "layers.ffn.down_proj.weight": "model.layers.{}.mlp.down_proj.weight",
    "final_norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}

# Gemma norms behind each branch too, which moves the names.
GEMMA_FOLDER_NAMES = FOLDER_NAMES | {
    "layers.attn_post_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
    "layers.ffn_norm.weight": "model.layers.{}.pre_feedforward_layernorm.weight",
    "layers.ffn_post_norm.weight": "model.layers.{}.post_feedforward_layernorm.weight",
}


def text_tensor_name(name: str) -> str | None:
    """The name that a tensor of a checkpoint with eyes has in its text model; None for those of the eyes. Names of a text
    model stay as they are. Checkpoints of both orders are about: language_model.model. and model.language_model."""
    for begin, ours in (("language_model.model.", "model."), ("language_model.lm_head.", "lm_head."),
                        ("model.language_model.", "model.")):  # fmt: skip
        if name.startswith(begin):
            return ours + name.removeprefix(begin)
    if name.removeprefix("model.").startswith(("vision_tower.", "multi_modal_projector.")):
        return None
    return name
