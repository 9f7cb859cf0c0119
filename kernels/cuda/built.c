/* What this build of the CUDA backend is for; `xopctl doctor` reads it. The makefile gives the
 * architectures that it named to nvcc. */
#include <cuda_runtime_api.h>
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

#include "kernels/build_note.h"

/* For tools that read this file without the makefile's flags. */
#ifndef XOP_CUDA_MACHINE
#define XOP_CUDA_MACHINE ""
#define XOP_CUDA_PTX ""
#endif

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

#ifdef CUBLAS_VER_MAJOR
#define CUBLASLT                                                                                   \
    "cublasLt=" TEXT(CUBLAS_VER_MAJOR) "." TEXT(CUBLAS_VER_MINOR) "." TEXT(CUBLAS_VER_PATCH) "\n"
#else
#define CUBLASLT ""
#endif

BUILD_NOTE("backend=cuda\n"
           "xopd=" XOP_VERSION "\n"
           "toolkit=" TEXT(CUDART_VERSION) "\n"
                                           "machine=" XOP_CUDA_MACHINE "\n"
                                           "ptx=" XOP_CUDA_PTX "\n" CUBLASLT);
