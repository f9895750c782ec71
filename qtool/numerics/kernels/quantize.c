/* The kernels of statistics.py, normalize.py, fake_quantize.py and bits.py for float32 and bfloat16 on the CPU.
 *
 * Each is bit for bit what the ATen ops in those files compute; they are the definition. Compiled with
 * -ffp-contract=off: a product and a sum are two roundings. Nothing depends on the number of threads.
 *
 * Tensors are dense and seen in memory order. A parameter per channel is one of `channels`, each for `inner` elements
 * in a row; where inner is 1 the caller repeats the parameters until a vector loop pays.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    BLOCK = 2048, /* elements done at a time: all buffers of a thread fit its first-level cache */
    FAN_IN = 16,  /* as in ordered_sum.py */
    CHUNK = FAN_IN * FAN_IN,
    FLOAT32 = 0,
    BFLOAT16 = 1,
};

typedef struct {
    float low, high;
    int32_t has_low, has_high;
} Bounds;

typedef struct {
    const float *scale;
    const int32_t *zero_point;
    int64_t channels, inner;
    float qmin, qmax;
} Grid;

typedef struct {
    const void *values; /* of dtype */
    const void *addend; /* likewise, or NULL */
    const float *factor, *shift; /* or NULL */
    int64_t channels, inner;
    int64_t count;
    int32_t dtype;
} Input;

typedef struct {
    void *values;  /* may be the input's */
    uint8_t *codes; /* or NULL; the bytes of int8 codes too */
    uint8_t *bits;  /* or NULL */
    float *range;   /* low, high */
    int64_t blocked;
    int32_t has_nan;
} Output;

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- elements ---- */

INLINE float from_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return value == value ? (uint16_t)rounded : 0x7fc0;
}

INLINE float clamped(float y, float low, float high) { /* NaN stays */
    y = y < low ? low : y;
    return y > high ? high : y;
}

INLINE int inside(float y, Bounds bounds) {
    return (y == y) & ((y > bounds.low) | !bounds.has_low) & ((y < bounds.high) | !bounds.has_high);
}

INLINE float to_step(float y, float inverse, float zero_point) { return rintf(y * inverse) + zero_point; }

/* ---- where a run of elements with parameters side by side (step 1) or shared (step 0) ends ---- */

typedef struct {
    int64_t index, length;
    int step;
} Run;

INLINE Run run_at(int64_t position, int64_t left, int64_t channels, int64_t inner) {
    if (inner == 1) {
        int64_t index = position % channels;
        return (Run){index, smaller(channels - index, left), 1};
    }
    return (Run){position / inner % channels, smaller(inner - position % inner, left), 0};
}

/* ---- spans: one loop each over elements of one run ---- */

INLINE void affine_span(float *restrict y, int64_t length, const float *factor, const float *shift, const int step) {
#pragma omp simd
    for (int64_t i = 0; i < length; i++)
        y[i] = y[i] * factor[i * step] + shift[i * step];
}

INLINE void grid_span(const float *restrict y, float *restrict values, uint8_t *restrict codes,
                      uint8_t *restrict pass, int64_t length, const float *scale, const int32_t *zero_point,
                      const int step, float qmin, float qmax, Bounds bounds) {
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        const float zero = (float)zero_point[i * step];
        const float wanted = to_step(y[i], 1.0f / scale[i * step], zero);
        const float got = clamped(wanted, qmin, qmax);
        values[i] = (got - zero) * scale[i * step];
        codes[i] = (uint8_t)(int32_t)got;
        pass[i] = (uint8_t)((wanted == got) & inside(y[i], bounds));
    }
}

/* Without bounds, the gradient passes where clamping to the codes changed nothing. */
INLINE void plain_grid_span(const float *restrict y, float *restrict values, uint8_t *restrict codes,
                            uint8_t *restrict pass, int64_t length, float scale, float zero, float qmin, float qmax) {
    const float inverse = 1.0f / scale;
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        const float wanted = to_step(y[i], inverse, zero);
        const float got = clamped(wanted, qmin, qmax);
        values[i] = (got - zero) * scale;
        codes[i] = (uint8_t)(int32_t)got;
        pass[i] = (uint8_t)(wanted == got);
    }
}

INLINE void passing_span(const float *x, const float *grad, float *restrict passing, int64_t length,
                         const float *factor, const float *shift, const int step, const Grid *grid, Bounds bounds) {
    const int has_grid = grid->scale != NULL;
    const float inverse = has_grid ? 1.0f / *grid->scale : 0.0f;
    const float zero = has_grid ? (float)*grid->zero_point : 0.0f;
    const float qmin = grid->qmin, qmax = grid->qmax;
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        const float y = x[i] * factor[i * step] + shift[i * step];
        const float code = to_step(clamped(y, bounds.low, bounds.high), inverse, zero);
        const int on = ((code >= qmin) & (code <= qmax)) | !has_grid;
        passing[i] = on & inside(y, bounds) ? grad[i] : 0.0f;
    }
}

/* ---- blocks ---- */

typedef struct {
    float low, high;
    int has_nan;
} Tally;

INLINE void widen(const void *source, int64_t position, float *restrict wide, int64_t length, int dtype) {
    if (dtype == FLOAT32) {
        memcpy(wide, (const float *)source + position, sizeof(float) * length);
        return;
    }
    const uint16_t *halves = (const uint16_t *)source + position;
#pragma omp simd
    for (int64_t i = 0; i < length; i++)
        wide[i] = from_bfloat16(halves[i]);
}

/* The block's values after sum or affine and activation: in `y`, or where they lie already. */
static const float *load_block(const Input *in, const void *out, Bounds bounds, int64_t position, int64_t length,
                               float *restrict y) {
    const int is_plain = !in->addend && !in->factor && !bounds.has_low && !bounds.has_high;
    if (is_plain && in->dtype == FLOAT32 && in->values != out)
        return (const float *)in->values + position;
    widen(in->values, position, y, length, in->dtype);
    if (in->addend) {
        float addend[BLOCK];
        widen(in->addend, position, addend, length, in->dtype);
#pragma omp simd
        for (int64_t i = 0; i < length; i++)
            y[i] = y[i] + addend[i];
    }
    for (int64_t done = 0; in->factor && done < length;) {
        const Run run = run_at(position + done, length - done, in->channels, in->inner);
        const float *factor = in->factor + run.index, *shift = in->shift + run.index;
        if (run.step)
            affine_span(y + done, run.length, factor, shift, 1);
        else
            affine_span(y + done, run.length, factor, shift, 0);
        done += run.length;
    }
    if (bounds.has_low || bounds.has_high) {
#pragma omp simd
        for (int64_t i = 0; i < length; i++)
            y[i] = clamped(y[i], bounds.low, bounds.high);
    }
    return y;
}

static void add_range(const float *restrict y, int64_t length, Tally *tally) {
    float low = tally->low, high = tally->high;
    int has_nan = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(| : has_nan)
    for (int64_t i = 0; i < length; i++) {
        low = y[i] < low ? y[i] : low;
        high = y[i] > high ? y[i] : high;
        has_nan |= y[i] != y[i];
    }
    tally->low = low;
    tally->high = high;
    tally->has_nan |= has_nan;
}

static void quantize_block(const float *restrict y, float *restrict values, uint8_t *restrict codes,
                           uint8_t *restrict pass, int64_t position, int64_t length, const Grid *grid, Bounds bounds) {
    if (!grid->scale) {
#pragma omp simd
        for (int64_t i = 0; i < length; i++) {
            values[i] = y[i];
            pass[i] = (uint8_t)inside(y[i], bounds);
        }
        return;
    }
    const int is_bounded = bounds.has_low || bounds.has_high;
    for (int64_t done = 0; done < length;) {
        const Run run = run_at(position + done, length - done, grid->channels, grid->inner);
        const float *scale = grid->scale + run.index;
        const int32_t *zero = grid->zero_point + run.index;
        const float *from = y + done;
        if (run.step)
            grid_span(from, values + done, codes + done, pass + done, run.length, scale, zero, 1, grid->qmin,
                      grid->qmax, bounds);
        else if (is_bounded)
            grid_span(from, values + done, codes + done, pass + done, run.length, scale, zero, 0, grid->qmin,
                      grid->qmax, bounds);
        else
            plain_grid_span(from, values + done, codes + done, pass + done, run.length, *scale, (float)*zero,
                            grid->qmin, grid->qmax);
        done += run.length;
    }
}

/* Bit k of byte i is element 8 * i + k; returns how many are set. `pass` has room for seven more. */
static int64_t pack_block(uint8_t *restrict pass, int64_t length, uint8_t *restrict bits) {
    int64_t passing = 0;
    memset(pass + length, 0, 7);
    for (int64_t i = 0; i < (length + 7) / 8; i++) {
        uint64_t eight;
        memcpy(&eight, pass + 8 * i, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        eight = __builtin_bswap64(eight);
#endif
        bits[i] = (uint8_t)(eight * 0x0102040810204080u >> 56);
        passing += (int64_t)(eight * 0x0101010101010101u >> 56);
    }
    return passing;
}

/* ---- quantize_values, normalize_quantize ---- */

void qtool_quantize(const Input *in, Bounds bounds, const Grid *grid, Output *out, int threads) {
    const int64_t blocks = (in->count + BLOCK - 1) / BLOCK;
    float low = INFINITY, high = -INFINITY;
    int has_nan = 0;
    int64_t passing = 0;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1) reduction(min : low) \
    reduction(max : high) reduction(| : has_nan) reduction(+ : passing)
    for (int64_t block = 0; block < blocks; block++) {
        float wide[BLOCK], narrow[BLOCK];
        uint8_t unwanted[BLOCK], pass[BLOCK + 7];
        const int64_t position = block * BLOCK, length = smaller(BLOCK, in->count - position);
        Tally tally = {INFINITY, -INFINITY, 0};
        const float *y = load_block(in, out->values, bounds, position, length, wide);
        add_range(y, length, &tally);
        float *values = in->dtype == FLOAT32 ? (float *)out->values + position : narrow;
        uint8_t *codes = out->codes ? out->codes + position : unwanted;
        quantize_block(y, values, codes, pass, position, length, grid, bounds);
        if (in->dtype == BFLOAT16) {
            uint16_t *halves = (uint16_t *)out->values + position;
#pragma omp simd
            for (int64_t i = 0; i < length; i++)
                halves[i] = to_bfloat16(narrow[i]);
        }
        if (out->bits)
            passing += pack_block(pass, length, out->bits + position / 8);
        low = tally.low < low ? tally.low : low;
        high = tally.high > high ? tally.high : high;
        has_nan |= tally.has_nan;
    }
    out->range[0] = has_nan ? NAN : low;
    out->range[1] = has_nan ? NAN : high;
    out->blocked = in->count - passing;
    out->has_nan = has_nan;
}

/* ---- decode ---- */

INLINE void decode_span(const uint8_t *restrict codes, float *restrict values, int64_t length, const float *scale,
                        const int32_t *zero_point, const int step, const int is_signed) {
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        const int32_t code = is_signed ? (int32_t)(int8_t)codes[i] : (int32_t)codes[i];
        values[i] = ((float)code - (float)zero_point[i * step]) * scale[i * step];
    }
}

void qtool_decode(const uint8_t *codes, int is_signed, const Grid *grid, void *values, int dtype, int64_t count,
                  int threads) {
    const int64_t blocks = (count + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t block = 0; block < blocks; block++) {
        float narrow[BLOCK];
        const int64_t position = block * BLOCK, length = smaller(BLOCK, count - position);
        float *wide = dtype == FLOAT32 ? (float *)values + position : narrow;
        for (int64_t done = 0; done < length;) {
            const Run run = run_at(position + done, length - done, grid->channels, grid->inner);
            const float *scale = grid->scale + run.index;
            const int32_t *zero = grid->zero_point + run.index;
            const uint8_t *from = codes + position + done;
            if (run.step && is_signed)
                decode_span(from, wide + done, run.length, scale, zero, 1, 1);
            else if (run.step)
                decode_span(from, wide + done, run.length, scale, zero, 1, 0);
            else if (is_signed)
                decode_span(from, wide + done, run.length, scale, zero, 0, 1);
            else
                decode_span(from, wide + done, run.length, scale, zero, 0, 0);
            done += run.length;
        }
        if (dtype == BFLOAT16) {
            uint16_t *halves = (uint16_t *)values + position;
#pragma omp simd
            for (int64_t i = 0; i < length; i++)
                halves[i] = to_bfloat16(narrow[i]);
        }
    }
}

/* ---- masks ---- */

#define SELECT(name, word)                                                                                             \
    static void name(const word *restrict grad, word *restrict passing, const uint8_t *restrict bits, int64_t count) { \
        typedef word Eight __attribute__((vector_size(8 * sizeof(word))));                                             \
        const Eight places = {1, 2, 4, 8, 16, 32, 64, 128};                                                            \
        for (int64_t i = 0; i < count / 8; i++) {                                                                      \
            Eight kept;                                                                                                \
            memcpy(&kept, grad + 8 * i, sizeof kept);                                                                  \
            kept &= (Eight)((places & (word)bits[i]) != 0);                                                            \
            memcpy(passing + 8 * i, &kept, sizeof kept);                                                               \
        }                                                                                                              \
        for (int64_t i = count / 8 * 8; i < count; i++)                                                                \
            passing[i] = bits[i / 8] >> (i % 8) & 1 ? grad[i] : 0;                                                     \
    }
SELECT(select16, uint16_t)
SELECT(select32, uint32_t)
SELECT(select64, uint64_t)

/* Where a bit is 0, so are all bits of the element: +0 in every float format. */
void qtool_select(const char *grad, char *passing, const uint8_t *bits, int64_t count, int item_bytes, int threads) {
    const int64_t blocks = (count + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t position = block * BLOCK, length = smaller(BLOCK, count - position);
        const void *from = grad + position * item_bytes;
        void *to = passing + position * item_bytes;
        if (item_bytes == 2)
            select16(from, to, bits + position / 8, length);
        else if (item_bytes == 4)
            select32(from, to, bits + position / 8, length);
        else
            select64(from, to, bits + position / 8, length);
    }
}

/* Writes the indices of the bits that are 0; the caller knows how many there are. */
void qtool_blocked_indices(const uint8_t *bits, int64_t count, void *indices, int is_long) {
    int64_t found = 0;
    for (int64_t i = 0; i < (count + 7) / 8; i++) {
        if (bits[i] == 0xff)
            continue;
        for (int64_t k = 8 * i; k < smaller(8 * i + 8, count); k++) {
            if (bits[i] >> (k % 8) & 1)
                continue;
            if (is_long)
                ((int64_t *)indices)[found++] = k;
            else
                ((int32_t *)indices)[found++] = (int32_t)k;
        }
    }
}

/* ---- sums in the order of ordered_sum.py ---- */

typedef double Four __attribute__((vector_size(32)));
typedef float FourFloats __attribute__((vector_size(16)));

/* Add `rows` rows of 16 lanes, from 0: sums of g and of g * x. */
static void add_chunk(const float *g, const float *x, int rows, double *restrict total, double *restrict product) {
    Four t[4] = {{0}}, p[4] = {{0}};
    for (int row = 0; row < rows; row++) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            FourFloats narrow_g, narrow_x;
            memcpy(&narrow_g, g + 16 * row + 4 * k, sizeof narrow_g);
            memcpy(&narrow_x, x + 16 * row + 4 * k, sizeof narrow_x);
            const Four wide_g = __builtin_convertvector(narrow_g, Four);
            t[k] += wide_g;
            p[k] += wide_g * __builtin_convertvector(narrow_x, Four); /* exact, so a sum and one rounding */
        }
    }
    memcpy(total, t, sizeof t);
    memcpy(product, p, sizeof p);
}

/* Leave in items[0] the sum of `count` items of `width`; 0 of none. */
static void fold(double *items, int64_t count, int64_t width) {
    if (count == 0)
        memset(items, 0, sizeof(double) * width);
    while (count > 1) {
        const int64_t groups = (count + FAN_IN - 1) / FAN_IN;
        for (int64_t group = 0; group < groups; group++) {
            double *into = items + group * width;
            const double *from = items + group * FAN_IN * width;
            const int64_t members = smaller(FAN_IN, count - group * FAN_IN);
            for (int64_t i = 0; i < width; i++) {
                double sum = 0.0;
                for (int64_t member = 0; member < members; member++)
                    sum += from[member * width + i];
                into[i] = sum;
            }
        }
        count = groups;
    }
}

static double across_lanes(double *lanes) {
    for (int half = FAN_IN / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] = lanes[i] + lanes[i + half];
    return lanes[0];
}

typedef struct {
    const float *x, *grad; /* without grad: the sums of x and x * x, and the range of x */
    const float *factor, *shift;
    int64_t batch, channels, plane; /* planes (N, C, S) */
    int64_t rows, tile;             /* rows (R, C); factor and shift hold `tile` rows of parameters */
} Channels;

typedef struct {
    double *total, *product; /* (C,) */
    float *low, *high;       /* (C,), or NULL: a tensor of no elements has no address, so `grad` cannot say it */
} Sums;

/* A NaN among the values makes the sum NaN; so do infinities of both signs, and then it has to be looked for. */
static void settle_range(const Channels *in, Sums *out) {
    const int64_t channels = in->channels;
    for (int64_t c = 0; c < channels; c++) {
        if (out->total[c] == out->total[c])
            continue;
        const int64_t images = in->rows ? in->rows : in->batch, plane = in->rows ? 1 : in->plane;
        for (int64_t n = 0; n < images; n++)
            for (int64_t s = 0; s < plane; s++)
                if (isnan(in->x[(n * channels + c) * plane + s]))
                    out->low[c] = out->high[c] = NAN;
    }
}

/* The sums of one plane; `lanes` has room for 16 doubles a chunk, twice. */
static void sum_plane(const Channels *in, int64_t index, const Grid *grid, Bounds bounds, double *lanes,
                      double *total, double *product, float *low, float *high) {
    const int64_t plane = in->plane, chunks = (plane + CHUNK - 1) / CHUNK, channel = index % in->channels;
    const float *x = in->x + index * plane;
    double *products = lanes + chunks * FAN_IN;
    Tally tally = {INFINITY, -INFINITY, 0};
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float g[CHUNK], padded[CHUNK];
        const int64_t length = smaller(CHUNK, plane - chunk * CHUNK), rows = (length + FAN_IN - 1) / FAN_IN;
        const float *from = x + chunk * CHUNK, *weight = from;
        if (in->grad) {
            passing_span(from, in->grad + index * plane + chunk * CHUNK, g, length, in->factor + channel,
                         in->shift + channel, 0, grid, bounds);
            weight = g;
        } else {
            add_range(from, length, &tally);
        }
        if (length < rows * FAN_IN) {
            memset(padded, 0, sizeof padded);
            memcpy(padded, from, sizeof(float) * length);
            memset(g + length, 0, sizeof(float) * (rows * FAN_IN - length));
            weight = in->grad ? g : padded;
            from = padded;
        }
        add_chunk(weight, from, (int)rows, lanes + chunk * FAN_IN, products + chunk * FAN_IN);
    }
    fold(lanes, chunks, FAN_IN);
    fold(products, chunks, FAN_IN);
    *total = across_lanes(lanes);
    *product = across_lanes(products);
    *low = tally.low;
    *high = tally.high;
}

/* Returns 0, or 1 where there is no memory. */
int qtool_plane_sums(const Channels *in, Bounds bounds, const Grid *grid, Sums *out, int threads) {
    const int64_t planes = in->batch * in->channels, room = (in->plane / CHUNK + 1) * FAN_IN * 2;
    const int64_t places = planes + in->channels; /* sums of no images need their place too */
    double *totals = malloc(sizeof(double) * (places + 1) * 2), *products = totals + places;
    float *lows = malloc(sizeof(float) * (planes + 1) * 2), *highs = lows + planes + 1;
    int failed = !totals || !lows;
    if (!failed) {
#pragma omp parallel num_threads(threads) if (threads > 1) reduction(| : failed)
        {
            double *lanes = malloc(sizeof(double) * room);
            failed = !lanes;
#pragma omp for schedule(static)
            for (int64_t i = 0; i < planes; i++)
                if (lanes)
                    sum_plane(in, i, grid, bounds, lanes, totals + i, products + i, lows + i, highs + i);
            free(lanes);
        }
    }
    if (!failed) {
        fold(totals, in->batch, in->channels);
        fold(products, in->batch, in->channels);
        memcpy(out->total, totals, sizeof(double) * in->channels);
        memcpy(out->product, products, sizeof(double) * in->channels);
        for (int64_t c = 0; c < in->channels && out->low; c++) {
            out->low[c] = INFINITY;
            out->high[c] = -INFINITY;
            for (int64_t i = c; i < planes; i += in->channels) {
                out->low[c] = lows[i] < out->low[c] ? lows[i] : out->low[c];
                out->high[c] = highs[i] > out->high[c] ? highs[i] : out->high[c];
            }
        }
        if (out->low)
            settle_range(in, out);
    }
    free(totals);
    free(lows);
    return failed;
}

/* The sums of up to 256 rows: of 16 rows from 0, and of 16 of these from 0. */
static void sum_rows(const Channels *in, int64_t first, const Grid *grid, Bounds bounds, double *restrict few,
                     float *restrict g, double *restrict total, float *restrict low, float *restrict high) {
    const int64_t width = in->channels, last = smaller(first + CHUNK, in->rows);
    double *restrict product = total + width;
    memset(total, 0, sizeof(double) * 2 * width);
    for (int64_t row = first; row < last; row += FAN_IN) {
        const int64_t end = smaller(row + FAN_IN, last);
        memset(few, 0, sizeof(double) * 2 * width);
        for (int64_t at = row; at < end; at += in->tile) {
            const int64_t rows = smaller(in->tile, end - at);
            const float *x = in->x + at * width;
            if (in->grad)
                passing_span(x, in->grad + at * width, g, rows * width, in->factor, in->shift, 1, grid, bounds);
            for (int64_t r = 0; r < rows; r++) {
                const float *from = x + r * width, *weight = in->grad ? g + r * width : from;
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    few[c] += (double)weight[c];
                    few[width + c] += (double)weight[c] * (double)from[c];
                }
                if (in->grad)
                    continue;
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    low[c] = from[c] < low[c] ? from[c] : low[c];
                    high[c] = from[c] > high[c] ? from[c] : high[c];
                }
            }
        }
        for (int64_t c = 0; c < width; c++) {
            total[c] += few[c];
            product[c] += few[width + c];
        }
    }
}

int qtool_row_sums(const Channels *in, Bounds bounds, const Grid *grid, Sums *out, int threads) {
    const int64_t width = in->channels, units = (in->rows + CHUNK - 1) / CHUNK;
    double *sums = malloc(sizeof(double) * (units + 1) * 2 * width + 1);
    int failed = !sums;
    for (int64_t c = 0; c < width && out->low; c++) {
        out->low[c] = INFINITY;
        out->high[c] = -INFINITY;
    }
    if (!failed) {
#pragma omp parallel num_threads(threads) if (threads > 1) reduction(| : failed)
        {
            double *few = malloc(sizeof(double) * 2 * width + 1);
            float *g = malloc(sizeof(float) * (in->tile + 2) * width + 1), *low = g + in->tile * width;
            float *high = low + width;
            failed = !few || !g;
            for (int64_t c = 0; c < width && !failed; c++) {
                low[c] = INFINITY;
                high[c] = -INFINITY;
            }
#pragma omp for schedule(static)
            for (int64_t unit = 0; unit < units; unit++)
                if (few && g)
                    sum_rows(in, unit * CHUNK, grid, bounds, few, g, sums + unit * 2 * width, low, high);
#pragma omp critical
            for (int64_t c = 0; c < width && !failed && out->low; c++) {
                out->low[c] = low[c] < out->low[c] ? low[c] : out->low[c];
                out->high[c] = high[c] > out->high[c] ? high[c] : out->high[c];
            }
            free(few);
            free(g);
        }
    }
    if (!failed) {
        fold(sums, units, 2 * width);
        memcpy(out->total, sums, sizeof(double) * width);
        memcpy(out->product, sums + width, sizeof(double) * width);
        if (out->low)
            settle_range(in, out);
    }
    free(sums);
    return failed;
}

/* ---- normalize_grad ---- */

typedef struct {
    const float *x, *grad;
    float *out; /* may be x */
    const float *factor, *shift, *a, *m, *b, *k; /* m, b and k NULL: the statistics are frozen */
    int64_t channels, inner, count;
} Gradient;

INLINE void grad_span(const float *x, const float *restrict g, float *out, int64_t length, const float *a,
                      const float *m, const float *b, const float *k, const int step, const int is_frozen) {
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        const float direct = g[i] * a[i * step];
        out[i] = is_frozen ? direct : direct + ((x[i] - m[i * step]) * b[i * step] + k[i * step]);
    }
}

void qtool_normalize_grad(const Gradient *in, Bounds bounds, const Grid *grid, int threads) {
    const int64_t blocks = (in->count + BLOCK - 1) / BLOCK;
    const int is_frozen = in->m == NULL;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t block = 0; block < blocks; block++) {
        float g[BLOCK];
        const int64_t end = smaller((block + 1) * BLOCK, in->count);
        for (int64_t at = block * BLOCK; at < end;) {
            const Run run = run_at(at, end - at, in->channels, in->inner);
            const int64_t c = run.index, length = run.length;
            const float *x = in->x + at, *grad = in->grad + at;
            float *out = in->out + at;
            if (run.step) {
                passing_span(x, grad, g, length, in->factor + c, in->shift + c, 1, grid, bounds);
                if (is_frozen)
                    grad_span(x, g, out, length, in->a + c, NULL, NULL, NULL, 1, 1);
                else
                    grad_span(x, g, out, length, in->a + c, in->m + c, in->b + c, in->k + c, 1, 0);
            } else {
                passing_span(x, grad, g, length, in->factor + c, in->shift + c, 0, grid, bounds);
                if (is_frozen)
                    grad_span(x, g, out, length, in->a + c, NULL, NULL, NULL, 0, 1);
                else
                    grad_span(x, g, out, length, in->a + c, in->m + c, in->b + c, in->k + c, 0, 0);
            }
            at += length;
        }
    }
}
