"""Which operators are left out, by family and one by one, each with its reason; and what is on the list against a rule.

The rules are applied by ``derive_operators``, first that speaks against an operator first.
"""

# Families by patterns in the operator's name (separated by spaces), each with the reason it is left out.
FAMILIES: dict[str, str] = {
    "reads files, prints or tests": r"""
        from_file _print _test _debug manual_seed _sobol
    """,
    "draws random numbers": r"""
        bernoulli dropout rand normal_$ ^normal rrelu cauchy geometric exponential log_normal multinomial
        poisson$ binomial standard_gamma dirichlet _sample fractional ^native_dropout
    """,
    "belongs to training": r"""
        backward _jvp _amp _fused_ _foreach retain requires_grad output_nr _grad\b ^grad$ is_leaf fake_quant
        ctc_loss make_dual unpack_dual _fw_ batch_norm_ get_gradients lift$
    """,
    "is a vendor's kernel": r"""
        cuda cudnn miopen mkldnn mkl mps xnnpack nnpack vulkan fbgemm thnn _triton _flash efficient_attention
        _cslt _nnpack _transformer _native_multi _cufft fused_moe
    """,
    "is for old quantised tensors": r"""
        ^quantize dequantize quantized _quant qint int_repr q_scale q_zero q_per qscheme choose_qparams
        _saturate _wrapped _weight_int _dyn_quant _empty_affine _empty_per _make_per
    """,
    "is for sparse or nested tensors": r"""
        sparse csr csc bsr bsc coo nested jagged dense_dim to_dense to_padded _spdiags segment coalesce hspmm
        sspaddmm ^smm$ ^(ccol_|col_|crow_|row_)?indices$ ^values$ _packed pack_
    """,
    "reaches into storage or metadata": r"""
        storage ^set_ ^set$ ^_set resize functional_tensor pin_memory is_pinned record_stream reshape_alias _version
        ^data$ _lazy _sync rename names is_set_to swap_
    """,
    "asks about a tensor instead of computing": r"""
        ^is_ can_cast result_type promote_types allclose ^equal$ ^dim$ ^size$ ^stride$ ^numel$ get_device
        _has_same sym_is_ hash_tensor ^hash
    """,
    "copies a view; no export writes it": r"""
        _copy$
    """,
    "counts data into bins whose number the data decide": r"""
        histogram bincount histc
    """,
    "returns uninitialised memory": r"""
        ^empty ^new_empty ^_empty
    """,
    "has too few checks of its arguments": r"""
        ^lstm ^gru rnn embedding_bag unpool pdist rowwise embedding_renorm slow_conv conv_depthwise3d
        convolution_overrideable multi_margin multilabel_margin nll_loss_forward nll_loss2d_forward linalg_ldl
        geqrf orgqr ormqr linalg_householder lu_unpack lu_solve triangular_solve kaiser_window combinations
        mvlgamma linalg_eig$ linalg_eigvals$ ^gradient ^lcm ^gcd
    """,
}

WHY: dict[str, str] = {
    "reads files, prints or tests": "a program computes on its inputs and touches nothing else",
    "draws random numbers": "answers could not be reproduced, cached or compared; and the generator is global state",
    "belongs to training": "a program that is served does not learn; several of these write to their arguments",
    "is a vendor's kernel": "export writes the portable operator; these check little and depend on the machine",
    "is for old quantised tensors": "a second kind of tensor with kernels of its own; exports use quantized_decomposed",
    "is for sparse or nested tensors": "other layouts, whose indices are trusted by their kernels",
    "reaches into storage or metadata": "the alias analysis, on which the isolation of requests rests, would be blind",
    "asks about a tensor instead of computing": "export has answered such questions already",
    "copies a view; no export writes it": "the view and a clone say the same",
    "counts data into bins whose number the data decide": "a request would decide how much memory is taken",
    "returns uninitialised memory": "it may hold another request's data",
    "has too few checks of its arguments": "died on hostile arguments, or its code shows that it would",
    "is left out by name": "see below",
    "works in place, and its functional form is not on the list": "follows its functional form",
    "writes into a given tensor (out=)": "export never writes it, and it resizes what it is given",
    "exists only in the TorchScript interpreter": "no kernel stands behind it",
    "is private": "no promise about arguments; those that export writes are allowed by name",
    "is a rare special function": "no model has asked for it",
    "has no result": "it could only have an effect",
    "is deprecated": "torch will remove it",
    "takes a free text": "texts are accepted where their meaning is known",
    "takes a Storage": "reaches into storage",
    "takes named dimensions": "never exported",
}
"""For each reason, what stands behind it."""

# One by one, each with its reason.
DENIED: dict[str, str] = {
    "aten.native_batch_norm.default": "died in a fuzz run on statistics of the wrong size; export writes batch_norm",
    "aten.norm_except_dim.default": "belongs to training",
    "aten.flatten_dense_tensors.default": "belongs to training",
    "aten.unflatten_dense_tensors.default": "belongs to training",
    "aten.native_norm.default": "is for sparse or nested tensors",
    "aten.native_norm.ScalarOpt_dim_dtype": "is for sparse or nested tensors",
    "aten._convolution.deprecated": "is deprecated",
    "aten.as_strided_.default": "reaches into storage or metadata",
    "aten.slice_inverse.default": "reaches into storage or metadata",
    "aten.range.default": "is deprecated",
    "aten.range.step": "is deprecated",
}

# Against a rule, each with the reason: real models need them, and the inspector checks their arguments.
ALLOWED: dict[str, str] = {
    "aten.to.dtype_layout": "what .to() becomes in transformers' models",
    "aten.dropout.default": "in inference form only (preconditions)",
    "aten.lstm.input": "in inference form, the number of weights checked (preconditions)",
    "aten.gru.input": "in inference form, the number of weights checked (preconditions)",
    "aten.rnn_tanh.input": "in inference form, the number of weights checked (preconditions)",
    "aten.rnn_relu.input": "in inference form, the number of weights checked (preconditions)",
    **{
        f"aten.{cell}.default": "one step of a recurrent network; sizes checked before the call (guarded)"
        for cell in ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
    },
    **{
        f"aten.{name}.default": "in inference form only (preconditions)"
        for name in ("dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout", "feature_alpha_dropout")
    },
    **{
        f"aten.{name}": "recommenders; indices and offsets checked before the call (guarded)"
        for name in (
            "embedding_bag.default",
            "embedding_bag.padding_idx",
            "_embedding_bag.default",
            "_embedding_bag_forward_only.default",
        )
    },
    **{
        f"aten.{name}.default": "what torch.fft becomes in decomposed programs; sizes checked before the call (guarded)"
        for name in ("_fft_r2c", "_fft_c2r", "_fft_c2c")
    },
    "aten._weight_norm.default": "parametrised convolutions of speech models; sizes checked (guarded)",
    "aten._weight_norm_interface.default": "the same in decomposed programs; sizes checked (guarded)",
    "aten._native_batch_norm_legit.no_stats": "instance norm in decomposed programs, of one row (guarded)",
    "aten.repeat_interleave.self_Tensor": "stretching of sequences; repeats checked before the call (guarded)",
    "aten._unique2.default": "what torch.unique becomes",
    "aten._assert_async.default": "an assertion",
    "aten._assert_async.msg": "an assertion",
    "aten.scaled_dot_product_attention.default": "attention; dropout must be 0 (preconditions)",
    "aten.lift_fresh_copy.default": "what a tensor literal in forward becomes",
    "aten._unsafe_view.default": "a view in decomposed programs; tracked as one",
    "aten.copy.default": "functional form of copy_",
    "aten.copy_.default": "assignment to a slice",
    "aten.pow_.Tensor": "in place; its functional form is pow.Tensor_Tensor",
    "aten.transpose_.default": "in place; its functional form is transpose.int",
    "aten._to_copy.default": "what .to() becomes in decomposed programs",
    "aten.index_copy.default": "index, not a copy of a view",
    "aten.index_copy_.default": "index, not a copy of a view",
    "aten._assert_scalar.default": "an assertion",
    "aten._assert_tensor_metadata.default": "an assertion",
    "aten.sym_constrain_range.default": "an assertion",
    "aten.sym_constrain_range_for_size.default": "an assertion",
    "aten.quantile.default": "statistics, not quantisation",
    "aten.quantile.scalar": "statistics, not quantisation",
    "aten.nanquantile.default": "statistics, not quantisation",
    "aten.nanquantile.scalar": "statistics, not quantisation",
    "aten.grid_sampler_2d.default": "sampling of an image, not of a distribution",
    "aten.grid_sampler_3d.default": "sampling of an image, not of a distribution",
    "aten.grid_sampler.default": "sampling of an image, not of a distribution",
    "aten.isfinite.default": "computes",
}

_PRIVATE_ALLOWED = """
    _softmax _log_softmax _to_copy _native_batch_norm_legit_no_training _adaptive_avg_pool2d
    _adaptive_avg_pool3d _trilinear _cdist_forward _local_scalar_dense _int_mm _shape_as_tensor
    _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa _conj _conj_physical _neg_view _convolution
"""
PRIVATE_ALLOWED = frozenset(_PRIVATE_ALLOWED.split())
BITWISE = {"__and__", "__or__", "__xor__", "__lshift__", "__rshift__"}
_SPECIAL = """
    ndtr log_ndtr ndtri entr erfc erfcx erfinv gammaln digamma psi i0 i0e i1 i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1
    log1p expm1 sinc logit xlogy xlog1py
"""
SPECIAL_ALLOWED = {
    "special_erf",
    "special_expit",
    "special_softmax",
    "special_log_softmax",
    "special_logsumexp",
    "special_exp2",
    *(f"special_{name}" for name in _SPECIAL.split()),
}
_STRINGS = """
    approximate rounding_mode padding mode equation norm interpolation reduce indexing ord UPLO side assert_msg
    padding_mode p driver
"""
STRINGS = frozenset(_STRINGS.split())
QUANTIZED_DECOMPOSED = (
    "quantize_per_tensor.default quantize_per_tensor.tensor dequantize_per_tensor.default dequantize_per_tensor.tensor "
    "quantize_per_channel.default dequantize_per_channel.default choose_qparams.tensor "
    "choose_qparams_per_token.default quantize_per_token.default dequantize_per_token.default"
)
