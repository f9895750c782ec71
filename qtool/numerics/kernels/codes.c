/* The kernels of native_codes.py: uint8 codes to uint8 codes, and floats to codes and back.
 *
 * Each gives the codes of the ATen ops that stand in qtool/lowering/value_ops.py and casts.py; compiled with
 * -ffp-contract=off, so a product and a sum are two roundings. Nothing depends on the number of threads, and nothing is
 * kept between calls.
 */

#include <math.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    BLOCK = 4096, /* elements of a thread at a time */
    TILE = 512,   /* pixels that lie by channel in a buffer before they are written by pixel */
    MOST_CHANNELS = 4,
};

typedef struct {
    float inverse, zero_point; /* of the result: code = rint(value * inverse) + zero_point */
    float low, high;           /* codes that may leave */
} Result;

typedef struct {
    float scale, zero_point; /* value = (code - zero_point) * scale */
} Operand;

typedef struct {
    Operand a, b;
    Result result;
    int32_t multiplies;
} Pair;

typedef struct {
    double factor, offset; /* code = rint((sum - offset) * factor) + zero_point */
    double zero_point, low, high;
} Average;

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE float value_of(uint8_t code, Operand grid) { return ((float)code - grid.zero_point) * grid.scale; }

INLINE uint8_t code_of(float value, Result grid) {
    float code = rintf(value * grid.inverse) + grid.zero_point;
    code = code < grid.low ? grid.low : code;
    code = code > grid.high ? grid.high : code;
    return (uint8_t)(int32_t)code;
}

INLINE void pairs(const uint8_t *restrict a, const uint8_t *restrict b, uint8_t *restrict out, int64_t count, Pair pair,
                  int multiplies) {
    for (int64_t i = 0; i < count; i++) {
        const float x = value_of(a[i], pair.a), y = value_of(b[i], pair.b);
        out[i] = code_of(multiplies ? x * y : x + y, pair.result);
    }
}

/* Codes of a + b or a * b, element by element. */
void qtool_pair_codes(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t count, const Pair *told, int threads) {
    const Pair pair = *told;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t start = 0; start < count; start += BLOCK) {
        const int64_t size = smaller(BLOCK, count - start);
        if (pair.multiplies)
            pairs(a + start, b + start, out + start, size, pair, 1);
        else
            pairs(a + start, b + start, out + start, size, pair, 0);
    }
}

/* Clamps codes where they lie. */
void qtool_clamp_codes(uint8_t *codes, int64_t count, int low, int high, int threads) {
    const uint8_t lowest = (uint8_t)low, highest = (uint8_t)high;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t start = 0; start < count; start += BLOCK) {
        uint8_t *restrict x = codes + start;
        const int64_t size = smaller(BLOCK, count - start);
        for (int64_t i = 0; i < size; i++) {
            const uint8_t raised = x[i] < lowest ? lowest : x[i];
            x[i] = raised > highest ? highest : raised;
        }
    }
}

INLINE void quantize(const float *restrict x, uint8_t *restrict out, int64_t count, Result grid) {
    for (int64_t i = 0; i < count; i++)
        out[i] = code_of(x[i] == x[i] ? x[i] : 0.0f, grid); /* NaN gets the code of 0.0 */
}

/* Codes of floats, in their order. */
void qtool_quantize_codes(const float *x, uint8_t *out, int64_t count, const Result *told, int threads) {
    const Result grid = *told;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t start = 0; start < count; start += BLOCK)
        quantize(x + start, out + start, smaller(BLOCK, count - start), grid);
}

INLINE void interleave(uint8_t buffers[MOST_CHANNELS][TILE], uint8_t *restrict out, int64_t pixels, int channels) {
    for (int64_t i = 0; i < pixels; i++)
        for (int c = 0; c < channels; c++)
            out[i * channels + c] = buffers[c][i];
}

/* Codes of contiguous floats (images, channels, plane) as (images, plane, channels), of at most MOST_CHANNELS. */
void qtool_quantize_to_channels_last(const float *x, uint8_t *out, int64_t images, int64_t channels, int64_t plane,
                                     const Result *told, int threads) {
    const Result grid = *told;
    const int64_t tiles = (plane + TILE - 1) / TILE;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t tile = 0; tile < images * tiles; tile++) {
        uint8_t buffers[MOST_CHANNELS][TILE];
        const int64_t image = tile / tiles, start = tile % tiles * TILE, size = smaller(TILE, plane - start);
        for (int64_t c = 0; c < channels; c++)
            quantize(x + (image * channels + c) * plane + start, buffers[c], size, grid);
        uint8_t *to = out + (image * plane + start) * channels;
        if (channels == 3)
            interleave(buffers, to, size, 3);
        else
            interleave(buffers, to, size, (int)channels);
    }
}

/* Values of codes, in their order. */
void qtool_dequantize_codes(const uint8_t *codes, float *out, int64_t count, const Operand *told, int threads) {
    const Operand grid = *told;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t start = 0; start < count; start += BLOCK) {
        const uint8_t *restrict from = codes + start;
        float *restrict to = out + start;
        const int64_t size = smaller(BLOCK, count - start);
        for (int64_t i = 0; i < size; i++)
            to[i] = value_of(from[i], grid);
    }
}

INLINE uint8_t average(int64_t sum, Average grid) {
    double code = rint(((double)sum - grid.offset) * grid.factor) + grid.zero_point;
    code = code < grid.low ? grid.low : code;
    code = code > grid.high ? grid.high : code;
    return (uint8_t)(int32_t)code;
}

/* Codes of the mean of each channel of (images, plane, channels), or where is_channels_last is 0, (images, channels,
 * plane), of at most 2^23 pixels. */
void qtool_average_codes(const uint8_t *codes, uint8_t *out, int64_t images, int64_t channels, int64_t plane,
                         int is_channels_last, const Average *told, int threads) {
    const Average grid = *told;
    const int64_t parts = (channels + TILE - 1) / TILE;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t part = 0; part < images * parts; part++) {
        const int64_t image = part / parts, first = part % parts * TILE, size = smaller(TILE, channels - first);
        uint32_t sums[TILE] = {0};
        if (is_channels_last) {
            for (int64_t pixel = 0; pixel < plane; pixel++) {
                const uint8_t *restrict from = codes + (image * plane + pixel) * channels + first;
                for (int64_t c = 0; c < size; c++)
                    sums[c] += from[c];
            }
        } else {
            for (int64_t c = 0; c < size; c++) {
                const uint8_t *restrict from = codes + (image * channels + first + c) * plane;
                uint32_t sum = 0;
                for (int64_t pixel = 0; pixel < plane; pixel++)
                    sum += from[pixel];
                sums[c] = sum;
            }
        }
        for (int64_t c = 0; c < size; c++)
            out[image * channels + first + c] = average(sums[c], grid);
    }
}

/* Codes by way of a table of 256. */
void qtool_look_up_codes(const uint8_t *codes, uint8_t *out, int64_t count, const uint8_t *table, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t start = 0; start < count; start += BLOCK) {
        const int64_t end = start + smaller(BLOCK, count - start);
        for (int64_t i = start; i < end; i++)
            out[i] = table[codes[i]];
    }
}
