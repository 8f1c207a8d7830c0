"""The softmax kernels compiled for a GPU, here without one: no number shows how the logits are read."""

import re

import pytest

triton = pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from widen.head import softmax_triton  # noqa: E402
from widen.head.row_ops_triton import TritonRowOps  # noqa: E402

STATS = ("logq_ptr", "entropy_ptr", "top1_ptr", "factor_ptr", "value_ptr")


def loads(kernel, launch, vocabulary, **constants):
    """How often a kernel for bfloat16 logits on Hopper has loads of each width."""
    constants |= {"V": vocabulary, "PITCH": TritonRowOps().pitch(vocabulary), "LANES": launch.block // 8, "PACK": 8}
    signature = {"z_ptr": "*bf16", "target_ptr": "*i64"} | dict.fromkeys(STATS, "*fp32")
    signature |= {name: "fp32" for name in ("cap", "tau", "smooth", "bonus") if name in kernel.arg_names}
    aligned = {(at,): [["tt.divisibility", 16]] for at, kind in enumerate(signature.values()) if kind.startswith("*")}
    source = ASTSource(
        kernel, signature=signature | dict.fromkeys(constants, "constexpr"), constexprs=constants, attrs=aligned
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": launch.warps})
    widths = re.findall(r"ld\.global(?:\.\w+)*?\.((?:v\d\.)?b\d+)", compiled.asm["ptx"])
    return {width: widths.count(width) for width in set(widths)}


@pytest.mark.parametrize(("vocabulary", "tempered"), [(50257, False), (50257, True), (128256, False)])
def test_a_row_is_read_sixteen_bytes_at_a_time_whatever_the_vocabulary(vocabulary, tempered):
    """GPT-2's is odd. The only other loads are the target's logit (two bytes) and its index (eight bytes)."""
    launch = softmax_triton.launch_one_read(vocabulary, 2)
    blocks = triton.cdiv(vocabulary, launch.block)
    once = loads(softmax_triton.softmax_one_read, launch, vocabulary, BLOCKS=blocks, TEMPERED=tempered)
    other = {"TEMPERED": tempered, "SMOOTHED": tempered, "BONUS": tempered}
    flags = {"CAPPED": False, "RESIDUAL": True} | other
    twice = loads(softmax_triton.softmax_two_reads, softmax_triton.launch_two_reads(vocabulary, 2), vocabulary, **flags)
    for found in (once, twice):
        assert set(found) == {"b16", "b64", "v4.b32"}
        assert (found["b16"], found["b64"]) == (1, 1)
