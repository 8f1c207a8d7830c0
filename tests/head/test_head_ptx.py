"""Kernels compiled for a GPU, here without one: no number shows how logits are read, and where accumulators are kept."""

import re
import subprocess
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from widen.head import exp_product_triton, softmax_triton  # noqa: E402
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


@pytest.mark.parametrize("bias", [False, True])
def test_the_accumulators_of_the_exponential_product_stay_in_registers(bias, tmp_path):
    """A multiprocessor has 227 KB of shared memory for the program."""
    m, n, k = exp_product_triton.M, exp_product_triton.N, exp_product_triton.DEPTH
    constants = {"M": m, "N": n, "K": k, "GROUP": exp_product_triton.GROUP, "PROGRAMS": 132, "BIAS": bias}
    signature = {"x_desc": f"tensordesc<bf16[{m}, {k}]>", "w_desc": f"tensordesc<bf16[{n}, {k}]>"}
    signature |= {"z_desc": f"tensordesc<bf16[{m}, {n}]>", "bias_ptr": "*bf16", "c_ptr": "*fp32", "part_ptr": "*fp32"}
    signature |= dict.fromkeys(("C", "V", "D", "TILES"), "i32")
    aligned = {(at,): [["tt.divisibility", 16]] for at in range(3, 9)}  # pointers, and C, V and D
    source = ASTSource(
        exp_product_triton._exp_product,
        signature=signature | dict.fromkeys(constants, "constexpr"), constexprs=constants, attrs=aligned,
    )  # fmt: skip
    options = {"num_warps": 8, "num_stages": 3}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert compiled.metadata.shared <= 227 * 1024
    assert "wgmma.mma_async" in compiled.asm["ptx"]
    (tmp_path / "kernel.ptx").write_text(compiled.asm["ptx"])
    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    done = subprocess.run(
        [ptxas, "-v", "-arch=sm_90a", "kernel.ptx", "-o", "kernel.cubin"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "0 bytes spill stores, 0 bytes spill loads" in done.stderr
