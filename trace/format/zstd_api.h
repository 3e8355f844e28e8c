// format/zstd_api.h: the functions of libzstd that we use, as its stable interface declares them (1.4.0 and later). We
// declare them ourselves, because every Debian system has the library (dpkg needs it) and few have its headers.
#pragma once

#include <cstddef>

extern "C" {
typedef struct ZSTD_CCtx_s ZSTD_CCtx;
ZSTD_CCtx* ZSTD_createCCtx(void);
size_t ZSTD_freeCCtx(ZSTD_CCtx* context);
size_t ZSTD_CCtx_setParameter(ZSTD_CCtx* context, int parameter, int value);
size_t ZSTD_compress2(ZSTD_CCtx* context, void* to, size_t room, const void* from, size_t count);
size_t ZSTD_compressBound(size_t count);
size_t ZSTD_decompress(void* to, size_t room, const void* from, size_t count);
unsigned ZSTD_isError(size_t result);
}

inline constexpr int kZstdCompressionLevel = 100;  // ZSTD_c_compressionLevel
