/* Max pooling on 8-bit codes, and its gradient.
 *
 * A window of up to 255 places is searched for the largest code; of equal ones the first in scan order wins, as in
 * ATen. Both are one comparison of 16-bit keys: the code in the upper byte, 255 - place in the lower. No key of a real
 * place is 0, so 0 stands for padding.
 *
 * Every pooling is one of three dimensions; missing ones have the size 1. No result depends on the number of threads.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t images, channels;
    int64_t in[3], out[3];             /* depth, height, width */
    int64_t kernel[3], stride[3], padding[3], dilation[3];
    int64_t channels_last, is_signed;
} Geometry;

static inline uint16_t larger(uint16_t a, uint16_t b) { return a > b ? a : b; }

/* Keep in keys[i] the largest key; flipping the sign bit orders signed codes as unsigned ones. */
static void keep_largest(uint16_t *restrict keys, const uint8_t *restrict codes, int64_t count, int place,
                         uint8_t flip) {
    const uint16_t low = (uint16_t)(255 - place);
    for (int64_t i = 0; i < count; i++)
        keys[i] = larger(keys[i], (uint16_t)((uint16_t)((uint8_t)(codes[i] ^ flip) << 8) | low));
}

static void split_keys(const uint16_t *restrict keys, uint8_t *restrict codes, uint8_t *restrict places, int64_t count,
                       uint8_t flip) {
    for (int64_t i = 0; i < count; i++) {
        codes[i] = (uint8_t)(keys[i] >> 8) ^ flip;
        places[i] = (uint8_t)(255 - (keys[i] & 255));
    }
}

/* Keep in keys[o] the largest of column[o * step] - place, where 0 stays 0. */
static void keep_largest_of_column(uint16_t *restrict keys, const uint16_t *restrict column, int64_t count,
                                   int64_t step, uint16_t place) {
    if (step == 1)
        for (int64_t o = 0; o < count; o++)
            keys[o] = larger(keys[o], column[o] > place ? (uint16_t)(column[o] - place) : 0);
    else if (step == 2)
        for (int64_t o = 0; o < count; o++)
            keys[o] = larger(keys[o], column[2 * o] > place ? (uint16_t)(column[2 * o] - place) : 0);
    else
        for (int64_t o = 0; o < count; o++)
            keys[o] = larger(keys[o], column[o * step] > place ? (uint16_t)(column[o * step] - place) : 0);
}

static inline int inside(int64_t i, int64_t size) { return i >= 0 && i < size; }

/* One row of outputs of one plane: first the largest of each column of the window, then of neighbouring columns. */
static void pool_row(const uint8_t *plane, uint8_t *codes, uint8_t *places, const Geometry *g, int64_t od, int64_t oh,
                     uint16_t *columns, uint16_t *keys) {
    const uint8_t flip = g->is_signed ? 0x80 : 0;
    const int64_t width = (g->out[2] - 1) * g->stride[2] + (g->kernel[2] - 1) * g->dilation[2] + 1;
    const int64_t visible = width - g->padding[2] < g->in[2] ? width - g->padding[2] : g->in[2];
    memset(columns, 0, (size_t)width * sizeof(uint16_t));
    for (int64_t kd = 0; kd < g->kernel[0]; kd++)
        for (int64_t kh = 0; kh < g->kernel[1]; kh++) {
            const int64_t d = od * g->stride[0] - g->padding[0] + kd * g->dilation[0];
            const int64_t h = oh * g->stride[1] - g->padding[1] + kh * g->dilation[1];
            if (inside(d, g->in[0]) && inside(h, g->in[1]))
                keep_largest(columns + g->padding[2], plane + (d * g->in[1] + h) * g->in[2], visible,
                             (int)((kd * g->kernel[1] + kh) * g->kernel[2]), flip);
        }
    memset(keys, 0, (size_t)g->out[2] * sizeof(uint16_t));
    for (int64_t kw = 0; kw < g->kernel[2]; kw++)
        keep_largest_of_column(keys, columns + kw * g->dilation[2], g->out[2], g->stride[2], (uint16_t)kw);
    split_keys(keys, codes, places, g->out[2], flip);
}

static int pool_planes(const uint8_t *x, uint8_t *codes, uint8_t *places, const Geometry *g, int threads) {
    const int64_t width = (g->out[2] - 1) * g->stride[2] + (g->kernel[2] - 1) * g->dilation[2] + 1;
    const int64_t planes = g->images * g->channels, size = g->in[0] * g->in[1] * g->in[2];
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        uint16_t *columns = malloc((size_t)(width + g->out[2]) * sizeof(uint16_t));
        failed |= !columns;
#pragma omp for schedule(static)
        for (int64_t p = 0; p < planes; p++)
            for (int64_t row = 0; columns && row < g->out[0] * g->out[1]; row++) {
                const int64_t at = (p * g->out[0] * g->out[1] + row) * g->out[2];
                pool_row(x + p * size, codes + at, places + at, g, row / g->out[1], row % g->out[1], columns,
                         columns + width);
            }
        free(columns);
    }
    return failed;
}

static int pool_channels_last(const uint8_t *x, uint8_t *codes, uint8_t *places, const Geometry *g,
                              int threads) {
    const uint8_t flip = g->is_signed ? 0x80 : 0;
    const int64_t C = g->channels, rows = g->images * g->out[0] * g->out[1];
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        uint16_t *keys = malloc((size_t)C * sizeof(uint16_t));
        failed |= !keys;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++)
            for (int64_t ow = 0; keys && ow < g->out[2]; ow++) {
                const int64_t n = row / (g->out[0] * g->out[1]), od = row / g->out[1] % g->out[0], oh = row % g->out[1];
                memset(keys, 0, (size_t)C * sizeof(uint16_t));
                int place = 0;
                for (int64_t kd = 0; kd < g->kernel[0]; kd++)
                    for (int64_t kh = 0; kh < g->kernel[1]; kh++)
                        for (int64_t kw = 0; kw < g->kernel[2]; kw++, place++) {
                            const int64_t d = od * g->stride[0] - g->padding[0] + kd * g->dilation[0];
                            const int64_t h = oh * g->stride[1] - g->padding[1] + kh * g->dilation[1];
                            const int64_t w = ow * g->stride[2] - g->padding[2] + kw * g->dilation[2];
                            if (inside(d, g->in[0]) && inside(h, g->in[1]) && inside(w, g->in[2]))
                                keep_largest(keys, x + (((n * g->in[0] + d) * g->in[1] + h) * g->in[2] + w) * C, C,
                                             place, flip);
                        }
                const int64_t at = (row * g->out[2] + ow) * C;
                split_keys(keys, codes + at, places + at, C, flip);
            }
        free(keys);
    }
    return failed;
}

/* Returns 0, or 1 if there was no memory.
 *
 * x, codes, places: dense in the memory format that the geometry tells; places and codes have the size of the output. */
int qtool_max_pool_codes(const uint8_t *x, uint8_t *codes, uint8_t *places, const Geometry *g, int threads) {
    return g->channels_last ? pool_channels_last(x, codes, places, g, threads)
                            : pool_planes(x, codes, places, g, threads);
}

void qtool_replace_codes(const uint8_t *x, uint8_t *replaced, const uint8_t *table, int64_t count, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < count; i++) replaced[i] = table[x[i]];
}

/* How far the place of a window lies from its first, in elements of a plane. */
static void place_offsets(int64_t *offsets, const Geometry *g) {
    int64_t place = 0;
    memset(offsets, 0, 256 * sizeof(int64_t));
    for (int64_t kd = 0; kd < g->kernel[0]; kd++)
        for (int64_t kh = 0; kh < g->kernel[1]; kh++)
            for (int64_t kw = 0; kw < g->kernel[2]; kw++)
                offsets[place++] = (kd * g->dilation[0] * g->in[1] + kh * g->dilation[1]) * g->in[2] + kw * g->dilation[2];
}

static inline int64_t window_start(const Geometry *g, int64_t od, int64_t oh, int64_t ow) {
    const int64_t d = od * g->stride[0] - g->padding[0], h = oh * g->stride[1] - g->padding[1];
    return (d * g->in[1] + h) * g->in[2] + ow * g->stride[2] - g->padding[2];
}

typedef uint16_t BFloat16; /* the upper half of a float */

static inline float wide_float(float x) { return x; }
static inline float narrow_float(float x) { return x; }
static inline float wide_bfloat16(BFloat16 x) {
    const union { uint32_t bits; float value; } wide = {(uint32_t)x << 16};
    return wide.value;
}
static inline BFloat16 narrow_bfloat16(float x) {
    const union { float value; uint32_t bits; } wide = {x};
    const uint32_t rounded = (wide.bits + 0x7FFF + (wide.bits >> 16 & 1)) >> 16;
    return (BFloat16)((wide.bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}

/* The gradient of an element is summed over the windows that chose it, in scan order, in its own dtype: as in ATen. */
#define GRADIENT(NAME, T, WIDE, NARROW)                                                                                \
    static void NAME##_planes(const T *grad, const uint8_t *places, T *dx, const Geometry *g, int threads) {           \
        const int64_t planes = g->images * g->channels, size = g->in[0] * g->in[1] * g->in[2];                         \
        int64_t offsets[256];                                                                                          \
        place_offsets(offsets, g);                                                                                     \
        _Pragma("omp parallel for schedule(static) num_threads(threads)")                                              \
        for (int64_t p = 0; p < planes; p++) {                                                                         \
            T *plane = dx + p * size;                                                                                  \
            int64_t at = p * g->out[0] * g->out[1] * g->out[2];                                                        \
            memset(plane, 0, (size_t)size * sizeof(T));                                                                \
            for (int64_t od = 0; od < g->out[0]; od++)                                                                 \
                for (int64_t oh = 0; oh < g->out[1]; oh++) {                                                           \
                    int64_t window = window_start(g, od, oh, 0);                                                       \
                    for (int64_t ow = 0; ow < g->out[2]; ow++, at++, window += g->stride[2]) {                         \
                        T *to = plane + window + offsets[places[at]];                                                  \
                        *to = NARROW(WIDE(*to) + WIDE(grad[at]));                                                      \
                    }                                                                                                  \
                }                                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    static void NAME##_channels_last(const T *grad, const uint8_t *places, T *dx, const Geometry *g, int threads) {    \
        const int64_t C = g->channels, size = g->in[0] * g->in[1] * g->in[2], run = 64, runs = (C + run - 1) / run;    \
        int64_t offsets[256];                                                                                          \
        place_offsets(offsets, g);                                                                                     \
        for (int place = 0; place < 256; place++) offsets[place] *= C;                                                 \
        _Pragma("omp parallel for schedule(static) num_threads(threads)")                                              \
        for (int64_t task = 0; task < g->images * runs; task++) {                                                      \
            const int64_t n = task / runs, first = task % runs * run, count = C - first < run ? C - first : run;       \
            T *image = dx + n * size * C + first;                                                                      \
            int64_t at = n * g->out[0] * g->out[1] * g->out[2] * C + first;                                            \
            for (int64_t i = 0; i < size; i++) memset(image + i * C, 0, (size_t)count * sizeof(T));                    \
            for (int64_t od = 0; od < g->out[0]; od++)                                                                 \
                for (int64_t oh = 0; oh < g->out[1]; oh++)                                                             \
                    for (int64_t ow = 0; ow < g->out[2]; ow++, at += C) {                                              \
                        const int64_t window = window_start(g, od, oh, ow) * C;                                        \
                        for (int64_t c = 0; c < count; c++) {                                                          \
                            T *to = image + window + offsets[places[at + c]] + c;                                      \
                            *to = NARROW(WIDE(*to) + WIDE(grad[at + c]));                                              \
                        }                                                                                              \
                    }                                                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    void qtool_max_pool_grad_##NAME(const T *grad, const uint8_t *places, T *dx, const Geometry *g, int threads) {     \
        if (g->channels_last)                                                                                          \
            NAME##_channels_last(grad, places, dx, g, threads);                                                        \
        else                                                                                                           \
            NAME##_planes(grad, places, dx, g, threads);                                                               \
    }

GRADIENT(float32, float, wide_float, narrow_float)
GRADIENT(bfloat16, BFloat16, wide_bfloat16, narrow_bfloat16)
