"""How it is measured: device, clock, sampler, and the axes of each family."""
