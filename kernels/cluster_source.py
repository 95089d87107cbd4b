"""CUDA C of the cluster family: barriers of a cluster, and reads of another block's shared memory.

No headers, so that NVRTC needs no include path. Each kernel is launched in clusters by
`kernels.cluster_launch`; `ctarank` is a block's place in its cluster.
"""

STEPS = 64
"""Dependent loads in a row."""
BARRIERS = 16
"""Barriers in a row: each is some 16 instructions, and the loop around them must stay in cache."""
REPEATS = 2
"""The first fetches the instructions, the second counts."""
ROUNDS = 4
"""How often one block comes late and is seen by all."""
WORDS = 1024
"""32-bit words of the cycle that is chased, one lane alone."""
STRIDE = 33
"""Words from one to the next: odd, so that the cycle goes through all of them."""
THREADS = 1024
LOADS = 4
"""16-byte loads in a row of each of THREADS threads: 64 KiB, which every block can have."""

SOURCE = r"""
typedef unsigned int u32;
typedef long long s64;

extern __shared__ uint4 window[];

__device__ u32 rank() { u32 r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ u32 size() { u32 n; asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n)); return n; }
__device__ u32 own() { u32 c; asm("mov.u32 %0, %%clusterid.x;" : "=r"(c)); return c; }
__device__ u32 sm() { u32 s; asm volatile("mov.u32 %0, %%smid;" : "=r"(s)); return s; }
__device__ u32 local(const void* p) { return (u32)__cvta_generic_to_shared(p); }

/* The same place in the shared memory of block `r` of the cluster. */
__device__ u32 remote(u32 address, u32 r)
{
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(r));
    return there;
}

__device__ u32 read(u32 address)
{
    u32 value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

/* A read of the clock that waits for the value. */
__device__ s64 after(u32 value)
{
    s64 now = 0;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0x7fb0c1d3; @p mov.u64 %0, %%clock64; }"
                 : "+l"(now) : "r"(value) : "memory");
    return now;
}

__device__ void wait(s64 cycles)
{
    s64 begin = clock64();
    while (clock64() - begin < cycles) { }
}

struct Release {
    static __device__ void fence() { }
    static __device__ void sync()
    {
        asm volatile("barrier.cluster.arrive.release.aligned;\n"
                     "barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
};

/* Orders no memory: whoever wants that has to fence. */
struct Relaxed {
    static __device__ void fence() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }
    static __device__ void sync()
    {
        asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                     "barrier.cluster.wait.aligned;" ::: "memory");
    }
};

template <class Barrier>
__device__ void synchronise(int turns, int late, int* seen, s64* cycles, int* sms)
{
    u32* slots = (u32*)window;
    if (threadIdx.x < ROUNDS) slots[threadIdx.x] = 0xffffffffu;
    __syncthreads();
    Release::sync();
    int found = 0;
    for (u32 turn = 0; turn < ROUNDS; ++turn) {
        u32 who = (size() - 1) * turn / (ROUNDS - 1), word = own() + turn;
        if (rank() == who && threadIdx.x == 0) {
            wait(late);
            slots[turn] = word;
        }
        __syncwarp();
        Barrier::fence();
        Barrier::sync();
        Barrier::fence();
        found += read(remote(local(slots + turn), who)) == word;
    }
    seen[blockIdx.x * blockDim.x + threadIdx.x] = found;
    s64 begin = 0, end = 0;
    #pragma unroll 1
    for (int repeat = 0; repeat < REPEATS; ++repeat) {
        Barrier::sync();
        begin = clock64();
        #pragma unroll 1
        for (int turn = 0; turn < turns; ++turn) {
            #pragma unroll
            for (int step = 0; step < BARRIERS; ++step) Barrier::sync();
        }
        end = clock64();
    }
    if (threadIdx.x == 0) {
        cycles[blockIdx.x] = end - begin;
        sms[blockIdx.x] = sm();
    }
    Release::sync();  /* no block leaves while its shared memory may be read */
}

extern "C" __global__ void __launch_bounds__(1024)
sync_release(int turns, int late, int* seen, s64* cycles, int* sms)
{
    synchronise<Release>(turns, late, seen, cycles, sms);
}

extern "C" __global__ void __launch_bounds__(1024)
sync_relaxed(int turns, int late, int* seen, s64* cycles, int* sms)
{
    synchronise<Relaxed>(turns, late, seen, cycles, sms);
}

/* A block's own shared memory, by plain shared loads. */
struct Block {
    typedef u32 address;
    static __device__ address base(const void* p, u32) { return local(p); }
    static __device__ void follow(address& at)
    {
        asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at) :: "memory");
    }
    static __device__ u32 sum(u32 at)
    {
        u32 a, b, c, d;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at) : "memory");
        return (a + b) + (c + d);
    }
};

/* That of any block of the cluster. Machine code has one load for it, the generic one, which takes
   an address of 64 bits: a chase over 32 bits would put it together at each step. */
struct Cluster {
    typedef unsigned long long address;
    static __device__ address base(const void* p, u32 r)
    {
        address there;
        asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(r));
        return there;
    }
    static __device__ void follow(address& at)
    {
        asm volatile("ld.u64 %0, [%0];" : "+l"(at) :: "memory");
    }
    static __device__ u32 sum(address at)
    {
        u32 a, b, c, d;
        asm volatile("ld.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(at) : "memory");
        return (a + b) + (c + d);
    }
};

/* Each word holds the address of the next. Block 0 of each cluster follows those of `target`. */
template <class Space>
__device__ void chase(u32 target, int turns, u32* ends, s64* cycles, int* sms)
{
    typedef typename Space::address address;
    address* words = (address*)window;
    address mine = Space::base(words, rank());
    for (u32 i = threadIdx.x; i < WORDS; i += blockDim.x)
        words[i] = mine + (i + STRIDE) % WORDS * sizeof(address);
    __syncthreads();
    Release::sync();
    if (rank() == 0 && threadIdx.x == 0) {
        address base = Space::base(words, target), at = base;
        s64 begin = 0, end = 0;
        #pragma unroll 1
        for (int repeat = 0; repeat < REPEATS; ++repeat) {
            begin = after((u32)at);
            #pragma unroll 1
            for (int turn = 0; turn < turns; ++turn) {
                #pragma unroll
                for (int step = 0; step < STEPS; ++step) Space::follow(at);
            }
            end = after((u32)at);
        }
        ends[own()] = (u32)(at - base) / sizeof(address);
        cycles[own()] = end - begin;
        sms[own()] = sm();
    }
    __syncwarp();
    Release::sync();
}

__device__ u32 word(u32 i, u32 r) { return i * 2654435761u + r; }

/* All threads read 16 bytes a load, all of a window of THREADS x LOADS x 16 bytes in each turn;
   each turn starts one place further on, so that no load of one can serve the next. */
template <class Space>
__device__ void stream(u32 distance, int turns, u32* sums, s64* cycles, int* sms)
{
    u32* words = (u32*)window;
    for (u32 i = threadIdx.x; i < THREADS * LOADS * 4; i += blockDim.x) words[i] = word(i, rank());
    typename Space::address base = Space::base(window, (rank() + distance) % size());
    u32 sum = 0;
    s64 begin = 0, end = 0;
    #pragma unroll 1
    for (int repeat = 0; repeat < REPEATS; ++repeat) {
        __syncthreads();
        Release::sync();
        begin = clock64();
        #pragma unroll 1
        for (int turn = 0; turn < turns; ++turn) {
            typename Space::address at = base + (threadIdx.x + turn) % THREADS * 16;
            #pragma unroll
            for (int load = 0; load < LOADS; ++load) sum += Space::sum(at + load * THREADS * 16);
        }
        after(sum);
        __syncthreads();
        end = clock64();
    }
    atomicAdd(sums + blockIdx.x, sum);
    if (threadIdx.x == 0) {
        cycles[blockIdx.x] = end - begin;
        sms[blockIdx.x] = sm();
    }
    Release::sync();
}

#define KERNEL(name, body, Space)                                                       \
extern "C" __global__ void __launch_bounds__(THREADS)                                   \
name(u32 which, int turns, u32* out, s64* cycles, int* sms)                             \
{                                                                                       \
    body<Space>(which, turns, out, cycles, sms);                                        \
}
KERNEL(chase_block, chase, Block)
KERNEL(chase_cluster, chase, Cluster)
KERNEL(stream_block, stream, Block)
KERNEL(stream_cluster, stream, Cluster)
"""

DEFINES = {
    name: str(value)
    for name, value in (
        ("STEPS", STEPS),
        ("BARRIERS", BARRIERS),
        ("REPEATS", REPEATS),
        ("ROUNDS", ROUNDS),
        ("WORDS", WORDS),
        ("STRIDE", STRIDE),
        ("THREADS", THREADS),
        ("LOADS", LOADS),
    )
}
