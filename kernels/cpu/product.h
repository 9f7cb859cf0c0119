/*
 * Products of matrices on the CPU: each result is cut into tiles, which the pool's threads compute
 * whole. f16 and bf16 pass through f32, a block at a time, and are rounded when a tile is done.
 */
#ifndef KERNELS_CPU_PRODUCT_H
#define KERNELS_CPU_PRODUCT_H

#include "kernels/product.h"

/* Returns when the product is there; nothing is done where it is not wanted. */
void product_run(const struct product *product, const struct xop_host *host);

#endif
