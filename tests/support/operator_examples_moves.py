"""Examples of operators that move, choose or mix values; see `operator_examples`."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from toy_networks import inputs

Example = Callable[[Tensor], Tensor]
PLACES = torch.tensor([2, 0, 3])


def square(x: Tensor) -> Tensor:
    """(B, 4, 6) -> (B, 2, 4, 3) for operators over pictures."""
    return x.view(-1, 2, 4, 3)


def box(x: Tensor) -> Tensor:
    """(B, 4, 6) -> (B, 1, 2, 4, 3) for operators over volumes."""
    return x.view(-1, 1, 2, 4, 3)


def mixed(transform: Callable[[Tensor], Tensor]) -> Example:
    """The real part of a Fourier transform."""
    return lambda x: transform(x).real


def sampled(x: Tensor) -> Tensor:
    grid = torch.tanh(inputs(1, 3, 3, 2)).expand(len(x), -1, -1, -1)
    return F.grid_sample(square(x), grid, align_corners=False)


SHAPES: dict[str, Example] = {
    "reshape": lambda x: torch.reshape(x, (len(x), -1)),
    "reshape_as": lambda x: x.reshape_as(torch.zeros(len(x), 24)),
    "view": lambda x: x.view(-1, 24),
    "view_as": lambda x: x.view_as(torch.zeros(len(x), 24)),
    "contiguous": lambda x: x.transpose(1, 2).contiguous(),
    "clone": lambda x: x.clone(),
    "flatten": lambda x: torch.flatten(x, start_dim=1),
    "unflatten": lambda x: x.unflatten(2, (2, 3)),
    "ravel": lambda x: x.ravel().view(len(x), -1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "unsqueeze": lambda x: x.unsqueeze(dim=2),
    "transpose": lambda x: torch.transpose(x, 0, 1).transpose(0, 1),
    "permute": lambda x: x.permute(1, 2, 0).permute((2, 0, 1)),
    "movedim": lambda x: x.movedim(0, 2).movedim(2, 0),
    "moveaxis": lambda x: x.moveaxis(1, 2),
    "swapaxes": lambda x: x.swapaxes(1, 2),
    "swapdims": lambda x: x.swapdims(0, 1).swapdims(0, 1),
    "t": lambda x: x.reshape(-1, 6).t().t().reshape(len(x), -1),
    "adjoint": lambda x: x.adjoint(),
    "T": lambda x: x.reshape(-1, 6).T.T.reshape(len(x), -1),
    "mT": lambda x: x.mT,
    "H": lambda x: x.reshape(-1, 6).H.H.reshape(len(x), -1),
    "mH": lambda x: x.mH,
    "__getitem__": lambda x: x[:, PLACES] + x[:, [1, 0, 1]] + x[:, 1:, None, ..., :][:, :, 0],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(1, 2),
    "index_select": lambda x: torch.index_select(x, 1, PLACES),
    "gather": lambda x: x.gather(1, PLACES.view(1, 3, 1).expand(len(x), 3, 6)),
    "take_along_dim": lambda x: x.take_along_dim(PLACES.view(1, 3, 1), dim=1),
    "split": lambda x: x.split(3, dim=-1)[1],
    "split_with_sizes": lambda x: x.split_with_sizes((2, 4), 2)[1],
    "tensor_split": lambda x: x.tensor_split(3, dim=2)[2],
    "chunk": lambda x: x.chunk(2, -1)[0] + torch.chunk(x, chunks=2, dim=-1)[1],
    "unbind": lambda x: x.unbind(1)[3],
    "unfold": lambda x: x.unfold(2, 3, 2),
    "expand": lambda x: x[:, None].expand(-1, 2, -1, -1),
    "expand_as": lambda x: x[:, :1].expand_as(x),
    "broadcast_to": lambda x: x[:, :, :1].broadcast_to(x.shape),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, dim=1),
    "tile": lambda x: x.tile((1, 1, 2)),
    "roll": lambda x: torch.roll(x, shifts=(1, -2), dims=(1, 2)),
    "flip": lambda x: x.flip((1, 2)),
    "fliplr": lambda x: x.fliplr(),
    "flipud": lambda x: x.permute(1, 0, 2).flipud().permute(1, 0, 2),
    "rot90": lambda x: x.rot90(1, (1, 2)),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
    "as_strided": lambda x: x.contiguous().as_strided((len(x), 3, 2, 6), (24, 6, 6, 1)),
    "to": lambda x: x.to(torch.float64).to(device="cpu"),
    "type": lambda x: x.type(torch.float64),
    "type_as": lambda x: x.type_as(torch.zeros(1).double()),
    "float": lambda x: x.float(),
    "double": lambda x: x.double(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "cpu": lambda x: x.cpu(),
    "positive": torch.positive,
    "__pos__": lambda x: +x,
    "cuda": lambda x: x.cuda().cpu(),
    "detach_": lambda x: x + 0.0 * torch.tanh(x).detach_(),
    "requires_grad_": lambda x: x.clone().requires_grad_(),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.view(-1, 4, 2, 3), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x.view(-1, 1, 4, 6), 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x.view(-1, 4, 2, 3), 2),
    "view_as_complex": lambda x: torch.view_as_real(torch.view_as_complex(x.view(-1, 12, 2))),
    "view_as_real": lambda x: torch.view_as_real(torch.fft.fft(x)),
    "real": lambda x: torch.fft.fft(x).real + torch.real(torch.fft.fft(x, dim=1)),
}
CHOICES: dict[str, Example] = {
    "max_pool1d": lambda x: F.max_pool1d(x, 2) + torch.max_pool1d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(square(x), 2, stride=1, padding=1),
    "max_pool3d": lambda x: F.max_pool3d(box(x), kernel_size=(1, 2, 2)),
    "max_pool1d_with_indices": lambda x: F.max_pool1d(x, 2, return_indices=True)[0],
    "max_pool2d_with_indices": lambda x: F.max_pool2d(square(x), 2, return_indices=True)[0],
    "max_pool3d_with_indices": lambda x: F.max_pool3d(box(x), 2, return_indices=True)[0],
    "adaptive_max_pool1d": lambda x: torch.adaptive_max_pool1d(x, 2)[0],
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(square(x), 2),
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(box(x), (1, 2, 2)),
    "adaptive_max_pool1d_with_indices": lambda x: F.adaptive_max_pool1d(x, 2, True)[0],
    "adaptive_max_pool2d_with_indices": lambda x: F.adaptive_max_pool2d(square(x), 2, True)[0],
    "adaptive_max_pool3d_with_indices": lambda x: F.adaptive_max_pool3d(box(x), 2, True)[0],
    "topk": lambda x: x.topk(2, dim=1).values + torch.topk(x, 2, 1, largest=False)[0],
    "sort": lambda x: x.sort(dim=-1, descending=True).values,
    "amax": lambda x: x.amax((1, 2), keepdim=True)[:, 0],
    "amin": lambda x: torch.amin(x, dim=-1),
    "max": lambda x: x.max(1).values[:, None] + torch.max(x, x.flip(1)) + torch.max(x, inputs(6)),
    "min": lambda x: x.min(dim=1)[0][:, None] + torch.min(inputs(6), x),
    "maximum": lambda x: torch.maximum(x, inputs(6)) + x.maximum(x.roll(1, 1)),
    "minimum": lambda x: torch.minimum(x, x.roll(1, 1)),
}
MIXTURES: dict[str, Example] = {
    "avg_pool1d": lambda x: F.avg_pool1d(x, 3, 2, 1),
    "avg_pool2d": lambda x: F.avg_pool2d(square(x), 2, ceil_mode=True),
    "avg_pool3d": lambda x: F.avg_pool3d(box(x), 2),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 4),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(square(x), (1, 2)),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(box(x), 2),
    "interpolate": lambda x: F.interpolate(square(x), scale_factor=2, mode="bicubic"),
    "grid_sample": sampled,
    "cumsum": lambda x: x.cumsum(1),
    "diff": lambda x: torch.diff(x, dim=-1),
    "fft_fft": mixed(torch.fft.fft),
    "fft_ifft": mixed(torch.fft.ifft),
    "fft_fft2": mixed(torch.fft.fft2),
    "fft_ifft2": mixed(torch.fft.ifft2),
    "fft_fftn": mixed(lambda x: torch.fft.fftn(x, dim=(1, 2))),
    "fft_ifftn": mixed(lambda x: torch.fft.ifftn(x, dim=(1, 2))),
    "fft_rfft": mixed(torch.fft.rfft),
    "fft_irfft": lambda x: torch.fft.irfft(torch.fft.rfft(x)),
    "fft_rfft2": mixed(torch.fft.rfft2),
    "fft_irfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x)),
    "fft_rfftn": mixed(lambda x: torch.fft.rfftn(x, dim=(1, 2))),
    "fft_irfftn": lambda x: torch.fft.irfftn(torch.fft.rfftn(x, dim=(1, 2)), dim=(1, 2)),
    "fft_fftshift": lambda x: torch.fft.fftshift(x, dim=2),
    "fft_ifftshift": lambda x: torch.fft.ifftshift(x, dim=2),
    "im2col": lambda x: F.unfold(square(x), 2, padding=1),
    "upsample": lambda x: F.upsample(square(x), scale_factor=2),
    "col2im": lambda x: F.fold(x.view(-1, 4, 6), (3, 4), (2, 2), stride=1),
    "fold": lambda x: F.fold(x.view(-1, 4, 6), (3, 4), (2, 2)),
}
MOVES: dict[str, Example] = {**SHAPES, **CHOICES, **MIXTURES}
