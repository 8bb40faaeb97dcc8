"""Which kind of operator a torch function is; a kind has one rule per composite.

Functions are known by name, because one operator arrives in many spellings (`torch.add`,
`Tensor.add`, `+`, `+=`). A function that is not listed and hands a carrier of relevance on is
refused by the mode, by name: an unknown operator never gets a silent plain gradient.
"""

from collections.abc import Callable
from typing import Any

_NAMES_BY_KIND = {
    # every output is one of the inputs
    "structural": """
        reshape reshape_as view view_as contiguous clone flatten unflatten ravel squeeze unsqueeze
        transpose permute movedim moveaxis swapaxes swapdims t adjoint T mT H mH __getitem__ narrow
        select index_select gather take_along_dim split split_with_sizes tensor_split chunk unbind
        unfold expand expand_as broadcast_to repeat repeat_interleave tile roll flip fliplr flipud
        rot90 tril triu diagonal as_strided
        to type type_as float double half bfloat16 cpu cuda positive
        __pos__ pixel_shuffle pixel_unshuffle channel_shuffle requires_grad_ detach_
        max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices
        max_pool3d_with_indices adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
        adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
        adaptive_max_pool3d_with_indices topk sort
        view_as_real view_as_complex real
    """,
    "extremum": "amax amin max min maximum minimum",
    # linear without parameters, in which outputs are made of several inputs
    "mixing": """
        avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d interpolate upsample grid_sample cumsum diff
        fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft fft_rfft2
        fft_irfft2 fft_rfftn fft_irfftn fft_fftshift fft_ifftshift im2col col2im fold
    """,
    # linear too, but what a scale is made of
    "reduction": "mean sum",
    "scale": """
        rsqrt rsqrt_ sqrt sqrt_ reciprocal reciprocal_ std var norm vector_norm linalg_vector_norm
    """,
    "dropout": "dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout",
    "concat": "cat concat concatenate stack",
    "sum": """
        add add_ __add__ __radd__ __iadd__
        sub sub_ subtract __sub__ __rsub__ __isub__ rsub
    """,
    "negation": "neg neg_ __neg__ negative negative_",
    "product": """
        mul mul_ multiply __mul__ __rmul__ __imul__
    """,
    "matmul": "matmul __matmul__ __rmatmul__ bmm mm mv dot inner outer tensordot",
    "einsum": "einsum",
    "division": """
        div div_ divide true_divide __div__ __idiv__ __rdiv__ __truediv__ __itruediv__ __rtruediv__
    """,
    "fill": "masked_fill masked_fill_ where",
    "assignment": "__setitem__",
    "overwrite": "copy_",
    "scatter": "index_add index_add_ scatter_add scatter_add_",
    "activation": """
        gelu relu relu_ relu6 silu silu_ tanh tanh_ sigmoid sigmoid_ elu elu_ selu celu mish
        hardswish hardswish_ hardsigmoid hardtanh hardtanh_ leaky_relu leaky_relu_ softplus
        softsign tanhshrink logsigmoid log_sigmoid erf threshold _threshold acos asin atan
        pow pow_ __pow__ square square_ exp exp_ expm1 log log1p abs sin cos
        clamp clamp_ clamp_min clamp_max clip float_power
    """,
    "convolution": """
        conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    """,
    "linear": "linear",
    "addmm": "addmm",
    "pad": "pad",
    "layer_norm": "layer_norm",
    "rms_norm": "rms_norm",
    "group_norm": "group_norm",
    "batch_norm": "batch_norm",
    "softmax": "softmax log_softmax",
    "attention": "scaled_dot_product_attention",
    # made of the others
    "composite": """
        multi_head_attention_forward normalize glu baddbmm addcmul instance_norm prelu
    """,
}

KIND: dict[str, str] = {
    name: kind for kind, names in _NAMES_BY_KIND.items() for name in names.split()
}

#: kind of a linear operator -> where its weight stands among the arguments
WEIGHT_AT = {"linear": (1, "weight"), "convolution": (1, "weight"), "addmm": (2, "mat2")}


def operator_name(func: Callable[..., Any]) -> str:
    """The spelling-independent name of a torch function: `Tensor.T.__get__` is `T`."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return name
