/* Arithmetic that kernels of a GPU share with the CPU: nvcc compiles it for both. Such headers
 * are C11 and CUDA C++ alike: no designated initialisers, no compound literals, pointers cast.
 */
#ifndef RPI_BASE_HOST_DEVICE_H
#define RPI_BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#    define RPI_HOST_DEVICE __host__ __device__ static inline
#else
#    define RPI_HOST_DEVICE static inline
#endif

#endif
