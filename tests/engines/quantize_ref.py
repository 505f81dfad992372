"""FP8 quantization by its rules, in torch, sharing nothing with the program under test.

block:    s = amax / 448 of each 128x128 block (edge blocks: of the elements that exist)
channel:  the same for each row, scales [N, 1]
tensor:   the same for the whole matrix, scales [1]
codes:    nearest E4M3 to w / s, ties to even, clamped to +-448
zeros:    a block of zeros has scale 1, and zeros keep their sign
floor:    no scale is below 2^-126
group:    the same for 32 columns of a row (MXFP8), s as for ue8m0, stored as its exponent + 127 in U8
ue8m0:    s becomes the smallest power of two that is not below it
"""
import torch

BLOCK, GROUP = 128, 32
F32, F8 = torch.float32, torch.float8_e4m3fn
FLOOR = torch.tensor(2.0 ** -126)


def scale_of(amax, ue8m0=False):
    s = torch.maximum(amax / torch.tensor(448.0), FLOOR)
    if ue8m0:
        mantissa, exponent = torch.frexp(s)                  # s = mantissa * 2^exponent, mantissa in [0.5, 1)
        s = torch.ldexp(torch.ones_like(s), torch.where(mantissa > 0.5, exponent, exponent - 1))
    return torch.where(amax == 0, torch.ones_like(s), s)


def codes_of(quotient):
    return quotient.clamp(-448.0, 448.0).to(F8)


def ceil_blocks(n):
    return (n + BLOCK - 1) // BLOCK


def spread(scales, shape):
    """One scale for each element of the last two dimensions of shape."""
    rows = scales.repeat_interleave(BLOCK, -2)[..., :shape[-2], :]
    return rows.repeat_interleave(BLOCK, -1)[..., :shape[-1]]


def quantize_block(w, ue8m0=False):
    """w [..., N, K] -> codes of the same shape, scales [..., ceil(N/128), ceil(K/128)]."""
    w = w.to(F32)
    n, k = w.shape[-2:]
    rows, cols = ceil_blocks(n), ceil_blocks(k)
    amax = torch.empty(*w.shape[:-2], rows, cols)
    for r in range(rows):
        for c in range(cols):
            block = w[..., r * BLOCK:(r + 1) * BLOCK, c * BLOCK:(c + 1) * BLOCK]
            amax[..., r, c] = block.abs().amax((-2, -1))
    scales = scale_of(amax, ue8m0)
    return codes_of(w / spread(scales, w.shape)), scales


def quantize_channel(w):
    w = w.to(F32)
    scales = scale_of(w.abs().amax(-1, keepdim=True))
    return codes_of(w / scales), scales


def quantize_tensor(w):
    w = w.to(F32)
    scale = scale_of(w.abs().amax())
    return codes_of(w / scale), scale.reshape(1)


def quantize_group(w):
    """w [N, K] -> codes, exponents [N, ceil(K/32)].  The exponent by search in F64, sharing no formula with scale_of."""
    w = w.to(F32)
    n, k = w.shape
    padded = torch.nn.functional.pad(w, (0, -k % GROUP)).reshape(n, -1, GROUP)
    amax = padded.abs().amax(-1).to(torch.float64)
    reach = 448 * torch.ldexp(torch.ones(253, dtype=torch.float64), torch.arange(-126, 127))    # of each exponent
    exponents = torch.searchsorted(reach, amax) + 1          # the first that reaches amax
    exponents = torch.where(amax == 0, torch.full_like(exponents, 127), exponents)
    scales = torch.ldexp(torch.ones_like(exponents, dtype=F32), exponents - 127)
    codes = codes_of(padded / scales.unsqueeze(-1)).reshape(n, -1)[:, :k].contiguous()
    return codes, exponents.to(torch.uint8)


def dequantize(codes, scales, dtype=F32):
    """Any of the three kinds of scales, of any float dtype: product in F32, rounded once."""
    if scales.dtype == torch.uint8:                          # exponents of MXFP8
        scales = torch.ldexp(torch.ones(()), scales.to(torch.int32) - 127)
        return (codes.to(F32) * scales.repeat_interleave(GROUP, -1)[..., :codes.shape[-1]]).to(dtype)
    values, scales = codes.to(F32), scales.to(F32)
    grid = (*codes.shape[:-2], ceil_blocks(codes.shape[-2]), ceil_blocks(codes.shape[-1]))
    if scales.numel() == 1:
        return (values * scales.reshape(())).to(dtype)
    if tuple(scales.shape) == grid:
        return (values * spread(scales, codes.shape)).to(dtype)
    assert scales.shape[-1] == 1 and scales.shape[-2] == codes.shape[-2], (codes.shape, scales.shape)
    return (values * scales).to(dtype)


def split_experts(name, stack):
    """A stack [E, 2I, H] or [E, H, I] as the per-expert weights that engines name."""
    head, _, projection = name.rpartition(".")
    for e, matrix in enumerate(stack):
        if projection == "gate_up_proj":
            half = matrix.shape[0] // 2
            yield f"{head}.{e}.gate_proj.weight", matrix[:half]
            yield f"{head}.{e}.up_proj.weight", matrix[half:]
        else:
            yield f"{head}.{e}.{projection}.weight", matrix
