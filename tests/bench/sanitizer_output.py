"""What compute-sanitizer prints, shortened, and what `bench check` prints under it."""

RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at missing_syncthreads+0x6d0 and Read access at missing_syncthreads+0x5f0 [1016 hazards]
=========     Saved host backtrace up to driver entry point at kernel launch time
=========
========= Warning: Race reported between Write access at missing_syncthreads+0x6d0 and Read access at missing_syncthreads+0x5f0 [12 hazards]
=========
256 ones add up to 128
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""  # noqa: E501 - as the tool prints it
WARNED = """\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at missing_syncwarp+0x710 and Read access at missing_syncwarp+0x6d0 [16 hazards]
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""  # noqa: E501
MEMORY = """\
========= COMPUTE-SANITIZER
========= Invalid __shared__ read of size 4 bytes
=========     at reduce4_as_published+0x4a0
=========     by thread (32,0,0) in block (0,0,0)
=========     Address 0x280 is out of bounds
=========
========= Program hit unspecified launch failure (error 719) on CUDA API call to cuCtxSynchronize.
========= ERROR SUMMARY: 97 errors
========= ERROR SUMMARY: 92 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""  # noqa: E501
SYNC = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at kernels::meeting::programs::_3clocals_3e::later[abi:v1,cw51cXTLSU](long long, long long, Array<int, (int)1, C, mutable, aligned>)+0x410
=========     by thread (32,0,0) in block (0,0,0)
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: _launch_once in spec.py:134
=========
  branch later[block=64 split=32]: failed: CudaAPIError: [719] Call to cuCtxSynchronize results in CUDA_ERROR_LAUNCH_FAILED
========= Barrier error detected. Divergent thread(s) in block.
=========     at kernels::meeting::programs::_3clocals_3e::both_sides[abi:v1,cw51cXTLSU](long long, long long)+0x3b0
=========     by thread (32,0,0) in block (0,0,0)
=========
  branch both_sides[block=64 split=32]: failed: CudaAPIError: [719] Call to cuCtxSynchronize results in CUDA_ERROR_LAUNCH_FAILED
  branch after[block=64 split=32]: right
12 cases on the GPU: 2 wrong, 0 skipped
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""  # noqa: E501
GAVE_UP = """\
========= COMPUTE-SANITIZER
  barrier atomic_barrier[block=64 blocks_per_sm=1]: failed: wrong answer: 132 of 132 resident blocks waited for ever
32 cases on the GPU: 1 wrong, 0 skipped
========= Target application returned an error
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""  # noqa: E501
NOT_RUN = """\
========= COMPUTE-SANITIZER
warpgauge: no CUDA device
========= Target application returned an error
========= ERROR SUMMARY: 0 errors
"""
UNNAMED = """\
========= COMPUTE-SANITIZER
========= Program hit invalid argument
========= ERROR SUMMARY: 1 error
"""
BROKEN = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at broken+0x150
=========     by thread (0,0,0) in block (0,0,0)
=========
========= Program hit invalid argument
========= ERROR SUMMARY: 2 errors
"""
CLEAN = (
    "========= COMPUTE-SANITIZER\n65 cases on the GPU: 0 wrong\n========= ERROR SUMMARY: 0 errors\n"
)
