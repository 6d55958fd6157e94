// The table of architectures: a row each. spec.h says what a row is.
#include "models/spec.h"

#include <stddef.h>

const char *const ct__architectures[] = {
    // ------------------------------------------------------------------------------ decoders
    "llama: class=LlamaForCausalLM gguf=llama gguf_pairs=1 qkv_bias=$attention_bias|0 "
    "out_bias=$attention_bias|0 "
    "mlp_bias=$mlp_bias|0 embed=model.embed_tokens layer=model.layers.% final_norm=model.norm "
    "output=lm_head "
    "attn_norm=input_layernorm mlp_norm=post_attention_layernorm q=self_attn.q_proj "
    "k=self_attn.k_proj "
    "v=self_attn.v_proj o=self_attn.o_proj gate=mlp.gate_proj up=mlp.up_proj down=mlp.down_proj",
    "mistral: like=llama class=MistralForCausalLM window=$sliding_window|0",
    "mixtral: like=mistral class=MixtralForCausalLM experts=$num_local_experts routing=softmax "
    "renormalise=1 "
    "router=block_sparse_moe.gate expert_gate=block_sparse_moe.experts.#.w1 "
    "expert_up=block_sparse_moe.experts.#.w3 expert_down=block_sparse_moe.experts.#.w2",
    "qwen2: like=llama gguf_pairs=0 class=Qwen2ForCausalLM gguf=qwen2 qkv_bias=1 out_bias=0 "
    "window=$sliding_window|0",
    "qwen2_moe: like=qwen2 class=Qwen2MoeForCausalLM gguf=qwen2moe qkv_bias=$qkv_bias|1 "
    "experts=$num_experts|$num_local_experts expert_hidden=$moe_intermediate_size "
    "shared_hidden=$shared_expert_intermediate_size renormalise=$norm_topk_prob|0 "
    "sparse_step=$decoder_sparse_step|1 router=mlp.gate expert_gate=mlp.experts.#.gate_proj "
    "expert_up=mlp.experts.#.up_proj expert_down=mlp.experts.#.down_proj "
    "shared_gate=mlp.shared_expert.gate_proj shared_up=mlp.shared_expert.up_proj "
    "shared_down=mlp.shared_expert.down_proj shared_switch=mlp.shared_expert_gate",
    "qwen3: like=qwen2 class=Qwen3ForCausalLM gguf=qwen3 qkv_bias=$attention_bias|0 "
    "out_bias=$attention_bias|0 qk_norm=head q_norm=self_attn.q_norm k_norm=self_attn.k_norm",
    "qwen3_moe: like=qwen3 class=Qwen3MoeForCausalLM gguf=qwen3moe "
    "experts=$num_experts|$num_local_experts "
    "expert_hidden=$moe_intermediate_size renormalise=$norm_topk_prob|0 "
    "sparse_step=$decoder_sparse_step|1 "
    "router=mlp.gate expert_gate=mlp.experts.#.gate_proj expert_up=mlp.experts.#.up_proj "
    "expert_down=mlp.experts.#.down_proj",
    "gemma: like=llama gguf_pairs=0 class=GemmaForCausalLM gguf=gemma norm=rms1 embed_sqrt=1 "
    "tied=$tie_word_embeddings|1 "
    "act=$hidden_activation|gelu_pytorch_tanh",
    "gemma2: like=gemma class=Gemma2ForCausalLM gguf=gemma2 window=$sliding_window sliding=2 "
    "scale_of=$query_pre_attn_scalar softcap=$attn_logit_softcapping|0 "
    "final_softcap=$final_logit_softcapping|0 attn_post=post_attention_layernorm "
    "mlp_norm=pre_feedforward_layernorm mlp_post=post_feedforward_layernorm",
    "gemma3_text: like=gemma2 class=Gemma3ForCausalLM gguf=gemma3 "
    "sliding=$sliding_window_pattern|6 "
    "qk_norm=head q_norm=self_attn.q_norm k_norm=self_attn.k_norm",
    "phi3: like=llama gguf_pairs=0 class=Phi3ForCausalLM gguf=phi3 window=$sliding_window|0 "
    "qkv=joined "
    "joined_qkv=self_attn.qkv_proj mlp=joined gate_up=mlp.gate_up_proj",
    "phimoe: like=mixtral gguf_pairs=0 class=PhimoeForCausalLM gguf=phimoe norm=layer norm_bias=1 "
    "qkv_bias=$attention_bias|0 out_bias=$attention_bias|0 head_bias=$lm_head_bias|0 routing=mixer "
    "renormalise=0 jitter=$router_jitter_noise|0.01",
    "deepseek_v2: like=llama class=DeepseekV2ForCausalLM gguf=deepseek2 rope=pairs "
    "query_rank=$q_lora_rank|0 "
    "latent=$kv_lora_rank plain_head=$qk_nope_head_dim value_head=$v_head_dim "
    "head=$qk_nope_head_dim+$qk_rope_head_dim rotary=$qk_rope_head_dim "
    "experts=$n_routed_experts|$num_local_experts|0 expert_hidden=$moe_intermediate_size|hidden "
    "shared_hidden=$n_shared_experts*$moe_intermediate_size|0 dense_first=$first_k_dense_replace|0 "
    "routed_scale=$routed_scaling_factor|1 groups=$n_group|1 top_groups=$topk_group|1 "
    "q_a=self_attn.q_a_proj q_a_norm=self_attn.q_a_layernorm q_b=self_attn.q_b_proj "
    "kv_a=self_attn.kv_a_proj_with_mqa kv_a_norm=self_attn.kv_a_layernorm kv_b=self_attn.kv_b_proj "
    "router=mlp.gate expert_gate=mlp.experts.#.gate_proj expert_up=mlp.experts.#.up_proj "
    "expert_down=mlp.experts.#.down_proj shared_gate=mlp.shared_experts.gate_proj "
    "shared_up=mlp.shared_experts.up_proj shared_down=mlp.shared_experts.down_proj",
    "deepseek_v3: like=deepseek_v2 class=DeepseekV3ForCausalLM routing=sigmoid "
    "renormalise=$norm_topk_prob|1 router_bias=mlp.gate.e_score_correction_bias",
    "gpt_oss: like=llama gguf_pairs=0 class=GptOssForCausalLM gguf=gpt-oss qkv_bias=1 out_bias=1 "
    "window=$sliding_window|0 sliding=2 sinks=self_attn.sinks experts=$num_local_experts "
    "routing=chosen "
    "expert_in_out=1 expert_bias=1 limit=$swiglu_limit|7 gate_alpha=$swiglu_alpha|1.702 "
    "router=mlp.router expert_gate_up=mlp.experts.gate_up_proj expert_down=mlp.experts.down_proj",
    "llama4_text: like=llama class=Llama4ForCausalLM gguf=llama4 rope=pairs qk_norm=unit "
    "rope_interval=$no_rope_layer_interval|4 "
    "chunk=$attention_chunk_size|8192 experts=$num_local_experts routing=scaled "
    "dense_hidden=$intermediate_size_mlp|hidden shared_hidden=hidden "
    "sparse_step=$interleave_moe_layer_step|1 tune_queries=$attn_temperature_tuning|1 "
    "tune_scale=$attn_scale|0.1 tune_floor=$floor_scale|8192 expert_in_out=1 "
    "gate=feed_forward.gate_proj "
    "up=feed_forward.up_proj down=feed_forward.down_proj router=feed_forward.router "
    "expert_gate_up=feed_forward.experts.gate_up_proj expert_down=feed_forward.experts.down_proj "
    "shared_gate=feed_forward.shared_expert.gate_proj shared_up=feed_forward.shared_expert.up_proj "
    "shared_down=feed_forward.shared_expert.down_proj",
    "smollm3: like=llama class=SmolLM3ForCausalLM gguf=smollm3 window=$sliding_window|0 "
    "rope_interval=$no_rope_layer_interval|4 "
    "tied=$tie_word_embeddings|1",
    "olmo2: like=llama gguf_pairs=0 class=Olmo2ForCausalLM gguf=olmo2 attn_norm= mlp_norm= "
    "attn_post=post_attention_layernorm mlp_post=post_feedforward_layernorm qk_norm=whole "
    "q_norm=self_attn.q_norm k_norm=self_attn.k_norm",
    "glm4: like=llama class=Glm4ForCausalLM gguf=glm4 rope=pairs out_bias=0 mlp=joined "
    "gate_up=mlp.gate_up_proj attn_post=post_self_attn_layernorm mlp_post=post_mlp_layernorm",
    "granite: like=llama class=GraniteForCausalLM gguf=granite scale=$attention_multiplier "
    "embed_scale=$embedding_multiplier residual_scale=$residual_multiplier "
    "logit_scale=$logits_scaling",
    "starcoder2: like=llama gguf_pairs=0 act=$hidden_act|gelu_pytorch_tanh "
    "class=Starcoder2ForCausalLM gguf=starcoder2 norm=layer norm_bias=1 "
    "qkv_bias=$use_bias|1 out_bias=$use_bias|1 mlp_bias=$use_bias|1 window=$sliding_window|0 "
    "mlp=plain "
    "tied=$tie_word_embeddings|1 up=mlp.c_fc down=mlp.c_proj",
    "gpt2: class=GPT2LMHeadModel gguf=gpt2 norm=layer norm_bias=1 qkv_bias=1 out_bias=1 mlp_bias=1 "
    "rope=none "
    "in_out=1 tied=$tie_word_embeddings|1 qkv=joined mlp=plain act=$activation_function|gelu_new "
    "embed=transformer.wte position_table=transformer.wpe layer=transformer.h.% "
    "final_norm=transformer.ln_f output=lm_head attn_norm=ln_1 mlp_norm=ln_2 "
    "joined_qkv=attn.c_attn "
    "o=attn.c_proj up=mlp.c_fc down=mlp.c_proj",
    "gptj: class=GPTJForCausalLM gguf=gptj norm=layer norm_bias=1 mlp_bias=1 head_bias=1 "
    "rope=pairs "
    "rotary=$rotary_dim|head parallel=1 mlp=plain act=$activation_function|gelu_new "
    "embed=transformer.wte layer=transformer.h.% final_norm=transformer.ln_f output=lm_head "
    "attn_norm=ln_1 "
    "q=attn.q_proj k=attn.k_proj v=attn.v_proj o=attn.out_proj up=mlp.fc_in down=mlp.fc_out",
    "gpt_neox: act=$hidden_act|gelu class=GPTNeoXForCausalLM gguf=gptneox norm=layer norm_bias=1 "
    "qkv_bias=$attention_bias|1 "
    "out_bias=$attention_bias|1 mlp_bias=1 parallel=$use_parallel_residual|1 qkv=by_head mlp=plain "
    "embed=gpt_neox.embed_in layer=gpt_neox.layers.% final_norm=gpt_neox.final_layer_norm "
    "output=embed_out "
    "attn_norm=input_layernorm mlp_norm=post_attention_layernorm "
    "joined_qkv=attention.query_key_value "
    "o=attention.dense up=mlp.dense_h_to_4h down=mlp.dense_4h_to_h",
    // ------------------------------------------------------------------------------ encoders
    "bert: act=$hidden_act|$activation|gelu class=BertForMaskedLM gguf=bert family=encoder "
    "bidirectional=1 norm=layer norm_bias=1 "
    "qkv_bias=1 "
    "out_bias=1 mlp_bias=1 head_bias=1 rope=none order=post mlp=plain tied=$tie_word_embeddings|1 "
    "types=$type_vocab_size|2 embed=bert.embeddings.word_embeddings "
    "position_table=bert.embeddings.position_embeddings "
    "type_table=bert.embeddings.token_type_embeddings "
    "embed_norm=bert.embeddings.LayerNorm layer=bert.encoder.layer.% q=attention.self.query "
    "k=attention.self.key v=attention.self.value o=attention.output.dense "
    "attn_norm=attention.output.LayerNorm up=intermediate.dense down=output.dense "
    "mlp_norm=output.LayerNorm output_dense=cls.predictions.transform.dense "
    "output_norm=cls.predictions.transform.LayerNorm output=cls.predictions.decoder "
    "logit_bias=cls.predictions.bias",
    "roberta: like=bert class=RobertaForMaskedLM first_position=$pad_token_id+1|2 "
    "embed=roberta.embeddings.word_embeddings "
    "position_table=roberta.embeddings.position_embeddings "
    "type_table=roberta.embeddings.token_type_embeddings embed_norm=roberta.embeddings.LayerNorm "
    "layer=roberta.encoder.layer.% output_dense=lm_head.dense output_norm=lm_head.layer_norm "
    "output=lm_head.decoder logit_bias=lm_head.bias",
    "distilbert: like=bert class=DistilBertForMaskedLM gguf= eps=1e-12 types=0 type_table= "
    "embed=distilbert.embeddings.word_embeddings "
    "position_table=distilbert.embeddings.position_embeddings "
    "embed_norm=distilbert.embeddings.LayerNorm "
    "layer=distilbert.transformer.layer.% q=attention.q_lin k=attention.k_lin v=attention.v_lin "
    "o=attention.out_lin attn_norm=sa_layer_norm up=ffn.lin1 down=ffn.lin2 "
    "mlp_norm=output_layer_norm "
    "output_dense=vocab_transform output_norm=vocab_layer_norm output=vocab_projector "
    "logit_bias=vocab_projector.bias",
    "modernbert: like=bert act=$hidden_activation|gelu class=ModernBertForMaskedLM "
    "gguf=modern-bert norm_bias=$norm_bias|0 "
    "qkv_bias=$attention_bias|0 out_bias=$attention_bias|0 mlp_bias=$mlp_bias|0 rope=half "
    "order=pre "
    "types=0 type_table= position_table= qkv=joined mlp=joined window=$local_attention|128 "
    "sliding=-3 "
    "embed=model.embeddings.tok_embeddings embed_norm=model.embeddings.norm layer=model.layers.% "
    "joined_qkv=attn.Wqkv o=attn.Wo attn_norm=attn_norm mlp_norm=mlp_norm gate_up=mlp.Wi "
    "down=mlp.Wo "
    "final_norm=model.final_norm output_dense=head.dense output_norm=head.norm output=decoder "
    "logit_bias=decoder.bias",
    // ------------------------------------------------------------------------------ one reads, one writes
    "t5: class=T5ForConditionalGeneration gguf=t5 encoder=t5.encoder "
    "layers=$num_decoder_layers|$num_layers "
    "rope=none scale=1 head=$d_kv|64 buckets=$relative_attention_num_buckets|32 "
    "farthest=$relative_attention_max_distance|128 context=0 act=$dense_act_fn|relu "
    "mlp=$feed_forward_proj|plain tied=$tie_word_embeddings|1 "
    "logit_sqrt=$scale_decoder_outputs|$tie_word_embeddings|1 embed=shared layer=decoder.block.% "
    "final_norm=decoder.final_layer_norm output=lm_head attn_norm=layer.0.layer_norm "
    "q=layer.0.SelfAttention.q k=layer.0.SelfAttention.k v=layer.0.SelfAttention.v "
    "o=layer.0.SelfAttention.o relative=layer.0.SelfAttention.relative_attention_bias "
    "cross_norm=layer.1.layer_norm cross_q=layer.1.EncDecAttention.q "
    "cross_k=layer.1.EncDecAttention.k "
    "cross_v=layer.1.EncDecAttention.v cross_o=layer.1.EncDecAttention.o "
    "mlp_norm=layer.2.layer_norm "
    "gate=layer.2.DenseReluDense.wi_0 up=layer.2.DenseReluDense.wi_1 "
    "plain_up=layer.2.DenseReluDense.wi "
    "down=layer.2.DenseReluDense.wo",
    "t5.encoder: like=t5 encoder= bidirectional=1 layers=$num_layers layer=encoder.block.% "
    "final_norm=encoder.final_layer_norm output= cross_norm= cross_q= cross_k= cross_v= cross_o= "
    "mlp_norm=layer.1.layer_norm gate=layer.1.DenseReluDense.wi_0 up=layer.1.DenseReluDense.wi_1 "
    "plain_up=layer.1.DenseReluDense.wi down=layer.1.DenseReluDense.wo",
    "bart: class=BartForConditionalGeneration encoder=bart.encoder begin=$decoder_start_token_id|2 "
    "layers=$decoder_layers "
    "heads=$decoder_attention_heads hidden=$decoder_ffn_dim norm=layer norm_bias=1 qkv_bias=1 "
    "out_bias=1 "
    "mlp_bias=1 rope=none order=post mlp=plain embed_sqrt=$scale_embedding|0 "
    "tied=$tie_word_embeddings|1 "
    "positions=context+2 first_position=2 embed=model.shared "
    "position_table=model.decoder.embed_positions embed_norm=model.decoder.layernorm_embedding "
    "layer=model.decoder.layers.% output=lm_head logit_bias=final_logits_bias q=self_attn.q_proj "
    "k=self_attn.k_proj v=self_attn.v_proj o=self_attn.out_proj attn_norm=self_attn_layer_norm "
    "cross_q=encoder_attn.q_proj cross_k=encoder_attn.k_proj cross_v=encoder_attn.v_proj "
    "cross_o=encoder_attn.out_proj cross_norm=encoder_attn_layer_norm up=fc1 down=fc2 "
    "mlp_norm=final_layer_norm",
    "bart.encoder: like=bart encoder= bidirectional=1 layers=$encoder_layers "
    "heads=$encoder_attention_heads hidden=$encoder_ffn_dim layer=model.encoder.layers.% output= "
    "logit_bias= position_table=model.encoder.embed_positions "
    "embed_norm=model.encoder.layernorm_embedding cross_q= cross_k= cross_v= cross_o= cross_norm=",
    // ------------------------------------------------------------------------------ state spaces
    "mamba: class=MambaForCausalLM gguf=mamba family=mamba rope=none context=0 heads=1 head=width "
    "tied=$tie_word_embeddings|1 state=$state_size|16 conv=$conv_kernel|4 "
    "step_rank=$time_step_rank "
    "conv_bias=$use_conv_bias|1 mlp_bias=$use_bias|0 embed=backbone.embeddings "
    "layer=backbone.layers.% "
    "final_norm=backbone.norm_f output=lm_head attn_norm=norm ssm_in=mixer.in_proj "
    "ssm_conv=mixer.conv1d ssm_x=mixer.x_proj ssm_step=mixer.dt_proj ssm_decay=mixer.A_log "
    "ssm_skip=mixer.D ssm_out=mixer.out_proj",
    "rwkv: class=RwkvForCausalLM family=rwkv norm=layer norm_bias=1 rope=none context=0 heads=1 "
    "head=width "
    "attn_width=$attention_hidden_size|width act=silu embed=rwkv.embeddings layer=rwkv.blocks.% "
    "final_norm=rwkv.ln_out output=head first_norm=pre_ln attn_norm=ln1 mlp_norm=ln2 "
    "mix_k=attention.time_mix_key mix_v=attention.time_mix_value "
    "mix_r=attention.time_mix_receptance "
    "decay=attention.time_decay bonus=attention.time_first k=attention.key v=attention.value "
    "r=attention.receptance o=attention.output mlp_mix_k=feed_forward.time_mix_key "
    "mlp_mix_r=feed_forward.time_mix_receptance up=feed_forward.key down=feed_forward.value "
    "mlp_r=feed_forward.receptance",
    NULL,
};
